package reconcile_test

import (
	"fmt"
	"testing"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"

	"github.com/stretchr/testify/require"
)

// watch does what each syncer does once a second.
func watch(h *syncertest.Stack) {
	h.T.Helper()
	_, err := h.Maintainer().Watch(h.T.Context())
	require.NoError(h.T, err)
}

// flushAll empties Redis.
func flushAll(h *syncertest.Stack) {
	h.T.Helper()
	require.NoError(h.T, h.Redis.FlushAll(h.T.Context()).Err()) //nolint:forbidigo // its own Redis, and the fault itself
	h.Group()
}

// The consumers are behind, Redis loses everything, and no API process says anything: the syncer knew which claims MySQL did not have.
func TestRepair_ClaimsThatOnlyTheSyncerKnewOfAreNamedNotGivenUp(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, quiet := h.Create(20, nil), h.Create(20, nil)
	h.Take(id, syncertest.Asks("booked", 5)...)
	h.Take(quiet, syncertest.Asks("booked", 3)...)
	h.Claim(id, syncertest.Asks("answered", 10)...)
	watch(h)
	flushAll(h)

	done := h.Repair(id, reconcile.RepairHow{})
	require.Contains(t, differences(done), "nothing is left of them: seq 6 to 15;")
	require.Empty(t, done.Steps)
	require.False(t, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome.Took(), "no unit is sold again")
	require.Equal(t, differences(done), differences(h.Repair(id, reconcile.RepairHow{})), "unless someone says so")

	done = h.Repair(quiet, reconcile.RepairHow{})
	require.Empty(t, differences(done), "it lost nothing, and the syncer knew")
	require.Contains(t, done.Steps[0].ValueAfter, "; claims answered from 20", "the last second before the loss is named")

	require.Empty(t, differences(h.Repair(id, reconcile.RepairHow{GiveUpClaims: true})))
	require.Equal(t, int64(10), h.Campaign(id).LostClaims)
	replies := h.Claim(id, syncertest.Ask("new", ""))
	require.Equal(t, models.OutcomeClaimed, replies[0].Outcome)
	require.Equal(t, int64(16), replies[0].Claim.Seq)
}

// A backlog of more entries than are read each second is found by what Redis holds of each campaign and shard.
func TestRepair_ClaimsOfALongBacklogAreNamedByCampaignAndShard(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, small := h.Create(5000, nil), h.Create(20, nil)
	sharded := h.Create(40, func(c *models.Campaign) { c.Shards = 2 })
	shard := models.ShardID(sharded, 2)
	require.NoError(t, h.Hydrate(shard))
	h.Take(id, syncertest.Asks("booked", 5)...)
	h.Claim(id, syncertest.Asks("answered", 1200)...)
	h.Claim(small, syncertest.Asks("answered", 2)...)
	require.True(t, h.Claim(shard, syncertest.Ask("answered", ""))[0].Outcome.Took())
	watch(h)
	flushAll(h)
	require.Contains(t, differences(h.Repair(id, reconcile.RepairHow{})), "seq 6 to 1205;")
	require.Contains(t, differences(h.Repair(small, reconcile.RepairHow{})), "seq 1 to 2;")
	require.Contains(t, differences(h.Repair(sharded, reconcile.RepairHow{})), "shard 2: claims that were answered have no row, and nothing is left of them: seq 1;")
}

// More campaigns had claims without rows than are recorded one by one: any of the partition may have lost claims.
func TestRepair_APartitionWhoseLossIsNotExplainedStaysClosed(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(20, nil)
	h.Take(id, syncertest.Asks("booked", 5)...)
	watch(h)
	h.Exec(`UPDATE streams SET unbooked = '{"lots":{},"more":7}'`)
	flushAll(h)
	for range 2 {
		done := h.Repair(id, reconcile.RepairHow{})
		require.Contains(t, differences(done), "redis lost 7 claims of campaigns that are not known, perhaps of this one")
		require.Empty(t, done.Steps)
		require.False(t, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome.Took())
	}
	require.Empty(t, differences(h.Repair(id, reconcile.RepairHow{GiveUpClaims: true})))
	h.Take(id, syncertest.Asks("new", 15)...)
	h.RequireBooks(id, 20)

	flushAll(h) // a loss in which everything is known
	require.Empty(t, differences(h.Repair(id, reconcile.RepairHow{})), "the earlier loss is settled")
}

// Claims that the syncer did not record are known to the API processes that answered them. A repair gives these time to say so.
func TestRepair_WaitsForWhatAPIProcessesReport(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(20, nil)
	h.Take(id, syncertest.Asks("booked", 5)...)
	watch(h)
	_, now := h.ClaimAfter(id, lua.Position{}, syncertest.Asks("answered", 4)...)
	flushAll(h)
	before := h.Hydrator().Generations(t.Context())
	reported := make(chan error, 1)
	go func() { // as an API process does that sees the generation change
		for t.Context().Err() == nil {
			if after := h.Hydrator().Generations(t.Context()); after[0] != before[0] {
				reported <- h.Hydrator().Report(t.Context(), id, now.Position)
				return
			}
		}
	}()
	done := h.Repair(id, reconcile.RepairHow{})
	require.NoError(t, <-reported)
	require.Contains(t, differences(done), "nothing is left of them: seq 6 to 9;", fmt.Sprint(done.Steps))
}
