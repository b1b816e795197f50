package lab_test

import (
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"dibs/proof/lab"
)

// eachStrategy runs a test on a bench of each strategy without a
// service; Dibs' need one and are tested by their own packages.
func eachStrategy(t *testing.T, units int64, test func(t *testing.T, b *bench)) {
	t.Helper()
	for _, entry := range lab.Strategies() {
		if entry.Serve != nil {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			t.Parallel()
			test(t, newBench(t, entry.Name, units))
		})
	}
}

// One claimer after another must get right replies from every
// strategy: the flaws need concurrency.
func TestEveryStrategySellsRightWhileOneAsksAfterTheOther(t *testing.T) {
	t.Parallel()
	eachStrategy(t, 3, func(t *testing.T, b *bench) {
		s := b.claimer()
		require.Equal(t, lab.Claimed, b.claim(s, "ada"))
		require.Equal(t, lab.OverLimit, b.claim(s, "ada"))
		require.Equal(t, lab.Claimed, b.claim(s, "bob"))
		require.Equal(t, lab.OverLimit, b.claim(b.claimer(), "bob"), "another process knows as much")
		require.Equal(t, lab.Claimed, b.claim(s, "eve"))
		require.Equal(t, lab.SoldOut, b.claim(s, "late"))
		require.Equal(t, lab.SoldOut, b.claim(b.claimer(), "later"))

		require.NoError(t, s.Prepare(t.Context()))
		require.NotEqual(t, lab.SoldOut, b.claim(s, "late"), "prepared again, there is stock again")
	})
}

// A claimer that fails before any write must have sold nothing.
// What follows depends on the strategy's flaw.
func TestAFailureBeforeTheSaleSellsNothing(t *testing.T) {
	t.Parallel()
	eachStrategy(t, 1, func(t *testing.T, b *bench) {
		if b.entry.DieAt == lab.StepWritten || b.entry.Name == "setnx" {
			return
		}
		_, err := b.claimer(failAt(b.entry.DieAt)).Claim(t.Context(), "failing")
		require.ErrorIs(t, err, errHolder)
		require.Equal(t, lab.Claimed, b.claim(b.claimer(), "next"))
		require.Equal(t, lab.SoldOut, b.claim(b.claimer(), "last"))
	})
}

// InnoDB ends one of two deadlocked transactions; the claim must
// retry until done.
func TestADeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []uint16{1213, 1205, 1064} {
		b := newBench(t, "conditional-update", 3)
		tries := 0
		s := b.claimer(at(func(lab.Step) error {
			if tries++; tries < 3 {
				return &mysql.MySQLError{Number: code, Message: "as if"}
			}
			return nil
		}))
		outcome, err := s.Claim(t.Context(), "ada")
		switch code {
		case 1213:
			require.NoError(t, err)
			require.Equal(t, lab.Claimed, outcome)
			require.Equal(t, 3, tries)
			require.EqualValues(t, 2, b.row(), "what was rolled back took nothing")
		case 1205:
			require.NoError(t, err)
			require.Equal(t, lab.Busy, outcome, "waited long enough")
			require.EqualValues(t, 3, b.row())
		default:
			require.Error(t, err)
			require.EqualValues(t, 3, b.row())
		}
	}
}
