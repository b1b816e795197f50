package residency

import (
	"testing"

	"dibs/models"

	"github.com/stretchr/testify/require"
)

// lotOf is a place with packets in its lists.
func lotOf(free ...string) *lotPackets {
	p := &lotPackets{free: make(map[string]bool), taken: make(map[string]bool), gone: make(map[int][]string), came: make(map[int][]string)}
	for _, id := range free {
		p.free[id] = true
	}
	return p
}

// Lot 1 got two packets from the reserve whose names are lost. They are what it has or passed on and did not get otherwise, if these are
// two.
func TestPlaces_Name(t *testing.T) {
	t.Parallel()
	with := func(p *lotPackets, change func(p *lotPackets)) *lotPackets {
		change(p)
		return p
	}
	cases := map[string]struct {
		lot  *lotPackets
		ids  []string
		want []string // nil: not known
	}{
		"what the taker has":    {lot: lotOf("c", "d"), ids: []string{"", ""}, want: []string{"c", "d"}},
		"less what is named":    {lot: lotOf("c", "d"), ids: []string{"d", ""}, want: []string{"d", "c"}},
		"what a user has":       {lot: with(lotOf("d"), func(p *lotPackets) { p.taken["c"] = true }), ids: []string{"", ""}, want: []string{"c", "d"}},
		"less what rows name":   {lot: with(lotOf("a", "c", "d"), func(p *lotPackets) { p.came[2] = []string{"a"} }), ids: []string{"", ""}, want: []string{"c", "d"}},
		"what it passed on":     {lot: with(lotOf("c"), func(p *lotPackets) { p.gone[models.ReserveLot] = []string{"d"} }), ids: []string{"", ""}, want: []string{"c", "d"}},
		"it got one once more":  {lot: with(lotOf("c"), func(p *lotPackets) { p.gone[2] = []string{"c"} }), ids: []string{"", ""}, want: []string{"c", "c"}},
		"later ones are named":  {lot: with(lotOf("a", "c", "d"), func(p *lotPackets) { p.came[models.ReserveLot] = []string{"", "", "a"} }), ids: []string{"", ""}, want: []string{"c", "d"}},
		"a claim is lost":       {lot: lotOf("a"), ids: []string{"", ""}},
		"it has one more":       {lot: lotOf("a", "b", "c"), ids: []string{"", ""}},
		"another name is lost":  {lot: with(lotOf("a", "b"), func(p *lotPackets) { p.came[2] = []string{""} }), ids: []string{"", ""}},
		"what it passed on too": {lot: with(lotOf("a"), func(p *lotPackets) { p.gone[2] = []string{""} }), ids: []string{"", ""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := packets{order: []string{"a", "b", "c", "d", "e"}, lots: map[int]*lotPackets{1: c.lot, 2: lotOf("e"), models.ReserveLot: lotOf()}}
			require.Equal(t, c.want != nil, p.name(models.ReserveLot, 1, c.ids))
			if c.want != nil {
				require.Equal(t, c.want, c.ids)
			}
		})
	}
}

// The reserve got back a packet whose name is lost. It has one that it gave to lot 1.
func TestPlaces_NameWhatTheReserveGotBack(t *testing.T) {
	t.Parallel()
	reserve := lotOf("b", "c")
	reserve.gone[1] = []string{"a", "b"}
	p := packets{order: []string{"a", "b", "c"}, lots: map[int]*lotPackets{1: lotOf("a"), models.ReserveLot: reserve}}
	ids := []string{""}
	require.True(t, p.name(1, models.ReserveLot, ids))
	require.Equal(t, []string{"b"}, ids)
}
