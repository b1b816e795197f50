package lab_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/proof/lab"
)

// The flaws of the strategies without a lock, and what fixes each.

func TestReadThenWriteSellsTheLastUnitTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, "read-then-write", 1)
	g := newGate(lab.StepRead)
	slow := b.held(b.claimer(at(g.at)), g, "slow")

	require.Equal(t, lab.Claimed, b.claim(b.claimer(), "quick"))
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow), "the one unit is sold a second time")
}

func TestMutexMendsReadThenWriteInOneProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t, "mutex", 1)
	g := newGate(lab.StepRead)
	shared := b.claimer(at(g.at))
	slow := b.held(shared, g, "slow")

	quick := b.background(shared, "quick")
	require.Equal(t, int64(1), b.stock(), "the second waits")
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow))
	require.Equal(t, verdict{lab.SoldOut, nil}, wait(t, quick))
}

func TestSecondProcessBreaksTheMutex(t *testing.T) {
	t.Parallel()
	b := newBench(t, "mutex", 1)
	g := newGate(lab.StepRead)
	slow := b.held(b.claimer(at(g.at)), g, "slow")

	require.EqualValues(t, 1, b.elsewhere("quick")[lab.Claimed])
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow), "two processes sold the one unit")
}

// The control of the test above: every lock visible to both
// processes makes the second one wait.
func TestLocksInRedisMendWhatTwoProcessesBreak(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"setnx", "setnx-defer", "setnx-expire", "set-nx-px", "owner-token", "watchdog", "lock-per-coupon"} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, entry, 1)
			g := newGate(lab.StepRead)
			slow := b.held(b.claimer(at(g.at)), g, "slow")
			b.env.Patience = shortly

			require.EqualValues(t, 1, b.elsewhere("quick")[lab.Busy])
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			outcome, err := b.claimer(patience(longEnough)).Claim(ctx, "leaving")
			require.True(t, err != nil || outcome == lab.Busy, "who leaves waits no longer")
			close(g.opened)
			require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow))
			require.EqualValues(t, -2, b.lock(), "and the lock is given back")
		})
	}
}

func TestPipelineLetsOthersInBetweenItsReadsAndItsWrites(t *testing.T) {
	t.Parallel()
	b := newBench(t, "pipeline", 1)
	g := newGate(lab.StepRead)
	slow := b.held(b.claimer(at(g.at)), g, "slow")

	require.Equal(t, lab.Claimed, b.claim(b.claimer(), "quick"))
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow))
	require.Equal(t, int64(-1), b.stock(), "sold once more than there was")
}

func TestWatchStartsAgainWhenOthersCameInBetween(t *testing.T) {
	t.Parallel()
	b := newBench(t, "watch", 1)
	g := newGate(lab.StepRead)
	tries := 0
	slow := b.held(b.claimer(at(func(step lab.Step) error {
		tries++
		return g.at(step)
	})), g, "slow")

	require.Equal(t, lab.Claimed, b.claim(b.claimer(), "quick"))
	close(g.opened)
	require.Equal(t, verdict{lab.SoldOut, nil}, wait(t, slow))
	require.Equal(t, 2, tries, "the first transaction was not done, the second found nothing left")
	require.Equal(t, int64(0), b.stock())
}

func TestWatchGivesUpUnderACrowd(t *testing.T) {
	t.Parallel()
	b := newBench(t, "watch", 1000)
	// Another client writes each time.
	harried := b.claimer(patience(shortly), at(func(lab.Step) error {
		return b.env.Redis.Decr(t.Context(), lab.KeyOf(b.env, "stock")).Err()
	}))
	require.Equal(t, lab.Busy, b.claim(harried, "user"))
}

func TestExecRollsNothingBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, "watch", 5)
	taken := lab.KeyOf(b.env, "taken")
	require.NoError(t, b.env.Redis.Set(t.Context(), taken, "no list", 0).Err())

	_, err := b.claimer().Claim(t.Context(), "user")
	require.True(t, redis.HasErrorPrefix(err, "WRONGTYPE"), "%v", err)
	require.Equal(t, int64(4), b.stock(), "the failed claim has taken a unit all the same")
}
