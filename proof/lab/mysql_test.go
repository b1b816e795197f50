package lab_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/proof/lab"
)

// The flaws of the strategies that store claims, and what fixes each.

func TestEverybodyQueuesBehindOneHolder(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"for-update", "lock-per-coupon"} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, entry, 2)
			g := newGate(lab.StepRead)
			slow := b.held(b.claimer(at(g.at)), g, "slow")

			require.Equal(t, lab.Busy, b.claim(b.claimer(patience(shortly)), "next"), "behind whoever is slow")
			another := *b
			another.env.Campaign.ID += "-2"
			require.NoError(t, another.claimer().Prepare(t.Context()))
			require.Equal(t, lab.Claimed, b.claim(another.claimer(), "next"), "another coupon has another queue")

			close(g.opened)
			require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow))
			require.Equal(t, int64(1), b.row())
		})
	}
}

func TestMySQLRollsAKilledHolderBack(t *testing.T) {
	t.Parallel()
	for entry, dieAt := range map[string]lab.Step{
		"for-update": lab.StepRead, "conditional-update": lab.StepWritten, "skip-locked": lab.StepWritten,
	} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, entry, 1)
			b.killed(dieAt)
			require.Equal(t, lab.Claimed, b.claim(b.claimer(), "next"), "the unit is there and no one holds it")
			require.Equal(t, lab.SoldOut, b.claim(b.claimer(), "last"))
			require.Equal(t, int64(0), b.row())
		})
	}
}

// Claims must skip rows locked by others. If no other row is left they must
// wait: a holder may roll back, which would make a "sold out" wrong.
func TestSkipLockedPassesByWhatOthersTakeAndWaitsForTheLast(t *testing.T) {
	t.Parallel()
	b := newBench(t, "skip-locked", 2)
	fails := newGate(lab.StepRead)
	slow := b.held(b.claimer(at(func(step lab.Step) error {
		_ = fails.at(step)
		return errHolder
	})), fails, "slow")

	require.Equal(t, lab.Claimed, b.claim(b.claimer(), "quick"), "not behind whoever is slow")
	require.Equal(t, lab.Busy, b.claim(b.claimer(patience(shortly)), "hasty"), "the last row may come back")
	waiting := b.background(b.claimer(), "patient")
	close(fails.opened)
	require.ErrorIs(t, wait(t, slow).err, errHolder)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, waiting), "and did")
	require.Equal(t, lab.SoldOut, b.claim(b.claimer(), "late"))
}

// Two claims of one user may take two rows at once; the unique
// key must let only one pass.
func TestSkipLockedGivesAUserOneUnitThoughBothClaimsFoundOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, "skip-locked", 2)
	g := newGate(lab.StepWritten)
	first := b.held(b.claimer(at(g.at)), g, "ada")
	found := newGate(lab.StepRead)
	second := b.held(b.claimer(at(found.at)), found, "ada")
	close(found.opened)
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, first))
	require.Equal(t, verdict{lab.OverLimit, nil}, wait(t, second))
	require.EqualValues(t, 1, b.row(), "the second row is free again")
}

func TestWhoDiesBetweenLuaAndUpdateLeavesBooksThatDiffer(t *testing.T) {
	t.Parallel()
	for entry, dieAt := range map[string]lab.Step{
		"lua-update": lab.StepWritten, "lock-per-coupon": lab.StepWritten, "sum-flush": lab.StepWritten,
	} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, entry, 5)
			b.killed(dieAt)
			require.Equal(t, int64(4), b.stock(), "Redis sold one")
			require.Equal(t, int64(5), b.row(), "MySQL never hears of it")
		})
	}
}

// The fix of the above: the claim and its event are one step.
func TestDibsBooksAClaimWhoseClaimerDied(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"dibs-packages", "dibs-http"} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBenchAt(t, entry, 5, lab.Servers{RedisURL: testenv.Redis(t).URL(), MySQLDSN: testenv.Database(t).DSN})
			b.killed(lab.StepWritten)
			require.NoError(t, b.claimer().(lab.Settler).Settle(t.Context()))
			var remaining, claims int64
			require.NoError(t, b.env.DB.QueryRowContext(t.Context(),
				"SELECT remaining, (SELECT COUNT(*) FROM claims WHERE campaign_id = campaigns.id) FROM campaigns WHERE id = ?",
				b.env.Campaign.ID).Scan(&remaining, &claims))
			require.Equal(t, int64(4), remaining)
			require.Equal(t, int64(1), claims)
			b.env.Campaign.ID += "-never"
			_, err := b.claimer().Claim(t.Context(), "ada")
			require.Error(t, err, "a campaign that there is not is no sell-out")
		})
	}
}

// The flaw of scripts that write before they have checked everything. Dibs'
// scripts don't: their tests put a wrong type into each key.
func TestScriptThatFailsHalfWayKeepsItsFirstWrites(t *testing.T) {
	t.Parallel()
	b := newBench(t, "red-packet", 3)
	require.NoError(t, b.env.Redis.Set(t.Context(), lab.KeyOf(b.env, "taken"), "no list", 0).Err())
	_, err := b.claimer().Claim(t.Context(), "user")
	require.True(t, redis.HasErrorPrefix(err, "WRONGTYPE"), "%v", err)
	left, err := b.env.Redis.LLen(t.Context(), lab.KeyOf(b.env, "packets")).Result()
	require.NoError(t, err)
	require.Equal(t, int64(2), left, "a packet is gone that the claimer was not given")
}
