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

func TestPositionLaterIsOfTheLaterLoad(t *testing.T) {
	t.Parallel()
	old, next := lua.Position{Epoch: 1, Seq: 90}, lua.Position{Epoch: 2, Seq: 3}
	require.Equal(t, next, old.Later(next), "a load counts from its own beginning")
	require.Equal(t, next, next.Later(old))
	require.Equal(t, lua.Position{Epoch: 2, Seq: 4}, lua.Position{Epoch: 2, Seq: 4}.Later(lua.Position{Epoch: 2, Seq: 2}))
}

// Units that came back between two views of a shard make them different, also when as many were taken.
func TestShardViewIsSameOnlyIfNothingCameBack(t *testing.T) {
	t.Parallel()
	var v lua.ShardView
	v.Epoch, v.Version, v.Seq, v.Ups = 1, 2, 3, 4
	same := v
	require.True(t, v.IsSame(&same))
	for name, change := range map[string]func(o *lua.ShardView){
		"load": func(o *lua.ShardView) { o.Epoch++ }, "definition": func(o *lua.ShardView) { o.Version++ },
		"ups":  func(o *lua.ShardView) { o.Ups++ },
		"away": func(o *lua.ShardView) { o.Err = lua.ErrUnavailable },
	} {
		other := v
		change(&other)
		require.False(t, v.IsSame(&other), name)
		require.False(t, other.IsSame(&v), name)
	}
	later := v
	later.Seq++
	require.True(t, later.IsSame(&v), "units that left")
	require.False(t, v.IsSame(&later), "Redis was rolled back")
}
