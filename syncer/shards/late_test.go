package shards

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
)

// Units that come when no one waits any more stay in the reserve; whoever asks next has them without another move out of a shard.
func TestUnitsThatComeTooLateStayInTheReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(8, 2)
		whole := func(a *actor, each func()) {
			for !a.over {
				each()
				a.goOn()
			}
			w.actors = nil
			require.NoError(t, a.err)
			require.Zero(t, a.refill)
			require.NoError(t, w.broken())
		}
		whole(w.start(models.Need{Shard: 2, Units: 6}), func() {})
		require.True(t, w.claim(0, 2))
		one := w.lots[0]
		two := w.lots[1]
		reserve := w.lots[2]
		require.Equal(t, []int64{0, 6, 0}, []int64{one.memory.free(), two.memory.free(), reserve.memory.free()})
		need := models.Need{Shard: 1, Units: 1, Within: time.Second}
		whole(w.start(need), func() {
			if two.memory.tseq != two.disk.tseq { // the disk is slow
				require.NoError(t, sleep.For(t.Context(), 2*time.Second))
			}
		})
		require.Equal(t, []int64{0, 0, 6}, []int64{one.memory.free(), two.memory.free(), reserve.memory.free()})
		debits := two.memory.tseq
		whole(w.start(need), func() {})
		require.Equal(t, []int64{1, 0, 5}, []int64{one.memory.free(), two.memory.free(), reserve.memory.free()})
		require.Equal(t, debits, two.memory.tseq)
	})
}

// Units are in flight for as long as the same ones are: a look that finds others each time reports no age.
func TestTheAgeIsOfTheSameUnits(t *testing.T) {
	t.Parallel()
	m := &Mover{}
	p := &snapshot{campaign: &models.Campaign{ID: "c", Shards: 2}, views: make([]lua.ShardView, 3)}
	look := func(out, in int64) transit {
		last := m.inTransit
		m.inTransit = map[pair]transit{}
		p.views[0].Transfers = lua.Transfers{Out: map[int]int64{2: out}}
		p.views[1].Transfers = lua.Transfers{In: map[int]int64{1: in}}
		require.Len(t, m.openMoves(p, last), 1)
		require.Len(t, m.inTransit, 1)
		return m.inTransit[pair{campaignID: "c", from: 0, to: 1}]
	}
	first := look(5, 0)
	require.Equal(t, first, look(5, 0))
	require.Equal(t, first, look(9, 4))
	others := look(9, 5)
	require.NotEqual(t, first, others)
	require.Equal(t, others, look(9, 6))
	require.Equal(t, int64(9), look(7, 9).upto, "the giver lost a debit")
}

// What is free makes up for what a lot has sold beyond what it has, once.
func TestALotThatLacksUnitsGetsThemOnce(t *testing.T) {
	t.Parallel()
	m := &Mover{inTransit: map[pair]transit{}}
	p := &snapshot{campaign: &models.Campaign{ID: "c", Shards: 2}, views: []lua.ShardView{{Owed: 5}, {Total: 3}, {Total: 9}}}
	require.Equal(t, []step{{verbMove, 1, 0, 3}, {verbMove, 2, 0, 2}}, m.openMoves(p, nil))
}
