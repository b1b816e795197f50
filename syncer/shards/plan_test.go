package shards

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// Who waits for units has all lots asked for them at once, but for one that is away; who looks ahead asks one.
func TestAllShardsAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	p := &snapshot{campaign: &models.Campaign{ID: "c", Shards: 5}, views: []lua.ShardView{
		{}, {Total: 100}, {Total: 40}, {Total: 5}, {Total: 50, Err: lua.ErrUnavailable}, {},
	}}
	need := models.Need{Shard: 1, Units: 120}
	first := plan(p, need)
	require.Equal(t, step{verb: verbMove, from: 1, to: 5, units: 100}, first)
	require.Equal(t, []step{first, {verbMove, 2, 5, 20}, {verbMove, 3, 5, 5}}, p.with(first, need))
	p.isSlow = true
	require.Equal(t, []step{first, {verbMove, 2, 5, 35}, {verbMove, 3, 5, 5}}, p.with(first, need), "few waits for a slow disk")
	need.Ahead = true
	require.Equal(t, []step{first}, p.with(first, need))
	p.views[5].Total = 60
	require.Equal(t, step{verb: verbMove, from: 5, to: 0, units: 60}, plan(p, need), "the reserve first")
}

// A lot that was not credited what others debited for it gets that first, and one that forgot a debit is notified of it before anything is
// proven.
func TestWhatIsInFlightComesFirst(t *testing.T) {
	t.Parallel()
	out := func(peer int, units int64) lua.Transfers {
		return lua.Transfers{Out: map[int]int64{peer: units}}
	}
	p := &snapshot{campaign: &models.Campaign{ID: "c", Shards: 3}, views: []lua.ShardView{{}, {Transfers: out(1, 5)}, {Total: 100}, {Total: 100}}}
	need := models.Need{Shard: 1, Units: 7}
	require.Equal(t, step{verb: verbMove, from: 1, to: 0}, plan(p, need))
	p.views[0].Transfers = lua.Transfers{In: map[int]int64{2: 5, 3: 9}}
	p.views[2].Total, p.views[3].Total = 0, 0
	require.Equal(t, step{verb: verbMove, from: 2, to: 0}, plan(p, need))
	p.views[2].Transfers = out(1, 9)
	require.Equal(t, step{verb: verbProve}, plan(p, need))
}
