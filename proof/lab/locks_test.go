package lab_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/proof/lab"
)

// The flaws of the locks, and what fixes each.

var errHolder = errors.New("the holder failed")

func failAt(step lab.Step) func(*lab.Env) {
	return at(func(s lab.Step) error {
		if s == step {
			return errHolder
		}
		return nil
	})
}

func TestHolderThatFailsWedgesSETNX(t *testing.T) {
	t.Parallel()
	for entry, after := range map[string]lab.Outcome{
		"setnx":       lab.Busy,
		"setnx-defer": lab.Claimed, // fixed
	} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, entry, 5)
			_, err := b.claimer(failAt(lab.StepRead)).Claim(t.Context(), "failing")
			require.ErrorIs(t, err, errHolder)
			require.Equal(t, after, b.claim(b.claimer(patience(shortly)), "next"))
		})
	}
}

func TestHolderThatIsKilledWedgesLocksWithoutAnEnd(t *testing.T) {
	t.Parallel()
	// the last dies before its second command
	for _, entry := range []string{"setnx", "setnx-defer", "setnx-expire"} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, entry, 5)
			b.killed(lab.StepLocked)
			require.EqualValues(t, -1, b.lock(), "nothing will ever end the lock")
			require.Equal(t, lab.Busy, b.claim(b.claimer(patience(shortly)), "next"))
		})
	}
}

func TestLockWithAnEndOutlivesItsHolderNotForLong(t *testing.T) {
	t.Parallel()
	for entry, dieAt := range map[string]lab.Step{
		"setnx-expire":    lab.StepRead, // after its second command
		"set-nx-px":       lab.StepLocked,
		"owner-token":     lab.StepLocked,
		"watchdog":        lab.StepLocked,
		"lock-per-coupon": lab.StepRead,
	} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, entry, 5)
			b.env.Lease = time.Second
			b.killed(dieAt)
			require.Equal(t, lab.Claimed, b.claim(b.claimer(), "next"))
		})
	}
}

// late makes a holder outlive its lease, a second one start, and the first
// end while the second is active. It returns both claims and both gates.
func late(t *testing.T, b *bench) (first <-chan verdict, second <-chan verdict, gates [2]*gate) {
	t.Helper()
	gates = [2]*gate{newGate(lab.StepRead), newGate(lab.StepRead)}
	first = b.held(b.claimer(leased(50*time.Millisecond), at(gates[0].at)), gates[0], "first")
	b.awaitNoLock()
	second = b.held(b.claimer(at(gates[1].at)), gates[1], "second")
	return first, second, gates
}

func TestLateHolderOfSetNXPXFreesAnothersLock(t *testing.T) {
	t.Parallel()
	b := newBench(t, "set-nx-px", 1)
	first, second, gates := late(t, b)

	close(gates[0].opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, first))
	require.EqualValues(t, -2, b.lock(), "the second is at work and its lock is gone")
	third := newGate(lab.StepRead)
	thirdClaim := b.held(b.claimer(at(third.at)), third, "third") // so a third comes in
	close(third.opened)
	wait(t, thirdClaim)
	close(gates[1].opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, second), "and the one unit is sold twice")
}

func TestOwnerTokenKeepsALateHolderFromAnothersLock(t *testing.T) {
	t.Parallel()
	b := newBench(t, "owner-token", 1)
	first, second, gates := late(t, b)

	close(gates[0].opened)
	v := wait(t, first)
	require.ErrorIs(t, v.err, lab.ErrLeaseLost)
	require.Positive(t, b.lock(), "the second's lock stands")
	require.Equal(t, lab.Busy, b.claim(b.claimer(patience(shortly)), "third"))

	close(gates[1].opened)
	require.Equal(t, lab.Claimed, v.outcome)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, second), "its remaining flaw: two were in, and the one unit is sold twice")
}

func TestWatchdogKeepsTheLeaseOfASlowHolder(t *testing.T) {
	t.Parallel()
	b := newBench(t, "watchdog", 1)
	b.env.Lease = 300 * time.Millisecond
	g := newGate(lab.StepRead)
	slow := b.held(b.claimer(at(g.at)), g, "slow")

	patient := patience(5 * b.env.Lease)
	require.Equal(t, lab.Busy, b.claim(b.claimer(patient), "next"), "five leases long no one comes in")
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow))
	require.Equal(t, lab.SoldOut, b.claim(b.claimer(), "next"))
}

func TestWatchdogHolderWhoseLeaseIsGoneDoesNotSell(t *testing.T) {
	t.Parallel()
	b := newBench(t, "watchdog", 1)
	b.env.Lease = 60 * time.Millisecond
	g := newGate(lab.StepLocked)
	renewed := make(chan struct{})
	holder := b.held(b.claimer(at(func(step lab.Step) error {
		if err := g.at(step); err != nil || step != lab.StepLocked {
			return err
		}
		<-renewed
		return nil
	})), g, "holder")
	require.NoError(t, b.env.Redis.Del(t.Context(), lab.KeyOfLock(b.env)).Err())
	close(g.opened)
	time.AfterFunc(longEnough/20, func() { close(renewed) }) // many thirds of a lease later
	v := wait(t, holder)
	require.Error(t, v.err)
	require.NotEqual(t, lab.Claimed, v.outcome)
	require.Equal(t, int64(1), b.stock())
}
