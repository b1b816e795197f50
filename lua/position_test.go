package lua_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/lua"
)

func TestPositionBehindComparesWhatIsKnown(t *testing.T) {
	t.Parallel()
	stream := func(tip, added uint64) lua.StreamPosition {
		return lua.StreamPosition{Generation: "g", Tip: lua.EntryID{Ms: tip}, Added: int64(added)}
	}
	known := lua.Position{Epoch: 3, Seq: 9, Version: 2, Released: 4, Stream: stream(7, 20)}
	for says, change := range map[string]func(held *lua.Position){
		"":                      func(*lua.Position) {},
		"holds load 2":          func(held *lua.Position) { held.Epoch, held.Seq = 2, 99 },
		"holds 8 claims, 9 are": func(held *lua.Position) { held.Seq = 8 },
		"definition 1, 2 was":   func(held *lua.Position) { held.Version = 1 },
		"3 releases":            func(held *lua.Position) { held.Released = 3 },
		"lost the claim stream": func(held *lua.Position) { held.Stream = lua.StreamPosition{} },
		"another claim stream":  func(held *lua.Position) { held.Stream.Generation = "h" },
		"ends at 6-0":           func(held *lua.Position) { held.Stream.Tip.Ms = 6 },
		"had 19 entries":        func(held *lua.Position) { held.Stream = stream(8, 19) },
		"lacks entry 7-0": func(held *lua.Position) {
			held.Stream = stream(8, 30)
			held.Stream.Gap = lua.EntryID{Ms: 7}
		},
	} {
		held := known
		change(&held)
		if says == "" {
			require.Empty(t, held.Behind(known))
			continue
		}
		require.Contains(t, held.Behind(known), says)
	}
	newer := lua.Position{Epoch: 4, Stream: stream(7, 20)}
	require.Empty(t, newer.Behind(known), "a newer load counts from its own beginning")
	loading := known
	loading.Version = 0
	require.Empty(t, loading.Behind(known), "a load has no definition yet")
	require.Empty(t, known.Behind(lua.Position{}), "nothing is known")
}
