package shards

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/sleep"
	"dibs/models"
)

// Units that were called back when nobody waits any more stay in the reserve; whoever asks next has them without another recall.
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
		require.Zero(t, w.reserve)
		one, two := w.shards[0], w.shards[1]
		need := models.Need{Shard: 1, Units: 1, Within: time.Second}
		moves := two.moveNo
		whole(w.start(need), func() {
			if two.open != nil { // the disk is slow
				require.NoError(t, sleep.For(t.Context(), time.Second))
			}
		})
		require.Equal(t, []int64{moves + 1, 6, 0}, []int64{two.moveNo, w.reserve, one.memory.free()})
		whole(w.start(need), func() {})
		require.Equal(t, []int64{moves + 1, 5, 1}, []int64{two.moveNo, w.reserve, one.memory.free()})
	})
}
