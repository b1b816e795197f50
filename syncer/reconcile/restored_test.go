package reconcile_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"
	"dibs/syncer/resolve"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
)

// newWitnessed is a stack whose writer has Redis remember its flushes, as a consumer's does.
func newWitnessed(t *testing.T) *syncertest.Stack {
	t.Helper()
	h := syncertest.NewStack(t)
	h.Writer = syncertest.StartWriter(t, writer.Config{
		DB: h.DB, FlushLog: residency.NewFlushLog(h.Hydrator()), FlushInterval: time.Millisecond,
	})
	return h
}

func refill(h *syncertest.Stack) (refilled int) {
	h.T.Helper()
	refilled, err := h.Maintainer().Attend(h.T.Context(), true)
	require.NoError(h.T, err)
	return refilled
}

func look(h *syncertest.Stack) (broken int) {
	h.T.Helper()
	broken, err := h.Maintainer().Watch(h.T.Context())
	require.NoError(h.T, err)
	return broken
}

// MySQL loses what it committed last: one flush of the campaign. The next claim is booked only after the campaign takes no more claims,
// and all come back from Redis.
func TestRestored_IsNoticedBeforeTheNextClaimIsBooked(t *testing.T) {
	t.Parallel()
	for _, tail := range []int{1, 40} {
		h := newWitnessed(t)
		id := h.Create(100, nil)
		h.Take(id, syncertest.Asks("early", 10)...)
		require.Zero(t, look(h))
		restore := putBack(h)
		h.Take(id, syncertest.Asks("tail", tail)...)
		trim(h)
		restore()

		require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("next", ""))[0].Outcome, "redis has not been told yet")
		h.Sync()
		require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
		c := h.Campaign(id)
		require.Equal(t, models.ResidencyLost, c.Residency)
		require.Contains(t, c.ResidencyReason, "mysql was rolled back: redis knows of a flush at ")
		require.Equal(t, int64(11), c.SyncedSeq, "it was booked then")
		require.ErrorIs(t, h.Hydrate(id), campaigns.ErrLost, "mysql proves nothing")

		require.Equal(t, 1, refill(h))
		h.RequireBooks(id, int64(tail)+11)
		require.Empty(t, h.Compare(id).Differences)
		require.Zero(t, look(h))
		h.Take(id, syncertest.Ask("later", ""))
		h.RequireBooks(id, int64(tail)+12)
	}
}

// No one claims: the syncer sees it, all the same.
func TestRestored_IsSeenByTheSyncer(t *testing.T) {
	t.Parallel()
	h := newWitnessed(t)
	id, quiet := h.Create(100, nil), h.Create(100, nil)
	h.Take(id, syncertest.Asks("early", 10)...)
	restore := putBack(h)
	h.Take(id, syncertest.Asks("tail", 5)...)
	restore()
	require.Equal(t, 1, look(h))
	require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome)
	require.Equal(t, models.OutcomeAbsent, h.Claim(quiet, syncertest.Ask("x", ""))[0].Outcome)
	require.Zero(t, look(h), "it is told once")
	require.Equal(t, 2, refill(h))
	h.RequireBooks(id, 15)
	h.RequireBooks(quiet, 0)
}

// The control: a MySQL that lost nothing, whose old flushes were pruned, is none that was restored.
func TestRestored_ControlPrunedFlushes(t *testing.T) {
	t.Parallel()
	h := newWitnessed(t)
	require.NoError(t, h.Scripts.RecordFlushes(t.Context(), map[int]string{0: "01900000-0000-7000-8000-000000000000"})) // of 2024
	require.Equal(t, 1, look(h), "the newest stays for good")
	h = newWitnessed(t)
	id := h.Create(100, nil)
	require.NoError(t, h.Scripts.RecordFlushes(t.Context(), map[int]string{0: "01900000-0000-7000-8000-000000000000"}))
	h.Take(id, syncertest.Ask("u", ""))
	require.Zero(t, look(h))
}

// A connection breaks when a flush is recorded, and the record is sent again: Redis has it twice. MySQL has it.
func TestRestored_ControlAFlushThatWasRecordedTwice(t *testing.T) {
	t.Parallel()
	h := newWitnessed(t)
	id := h.Create(100, nil)
	h.Take(id, syncertest.Ask("u", ""))
	committed, errs := h.Scripts.Committed(t.Context(), 0)
	require.NoError(t, errs[0])
	require.NoError(t, h.Scripts.RecordFlushes(t.Context(), map[int]string{0: committed[0].Flushes[0]}))
	h.Take(id, syncertest.Ask("v", ""))
	require.Zero(t, look(h))
	h.RequireBooks(id, 2)
}

// A campaign that was loaded and evicted after the dump: MySQL's rows look whole. What they lack no one knows, so a person decides.
func TestRestored_AnEvictedCampaignIsForAPerson(t *testing.T) {
	t.Parallel()
	h := newWitnessed(t)
	id := h.Create(100, nil)
	h.Take(id, syncertest.Asks("early", 10)...)
	restore := putBack(h)
	h.Take(id, syncertest.Asks("tail", 20)...)
	require.Eventually(t, func() bool { return h.Evict(residency.MinIdle) == 1 }, waitMost, waitPoll)
	trim(h)
	restore()

	require.ErrorIs(t, h.Hydrate(id), campaigns.ErrLost)
	require.Zero(t, refill(h))
	require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome)
	require.Contains(t, fmt.Sprint(h.Compare(id).Differences), "mysql was rolled back")
	require.Contains(t, fmt.Sprint(h.Repair(id, reconcile.RepairHow{}).Left.Differences), "seq 11 to 30", "the tombstone has 30 claims")
	require.Empty(t, differences(h.Repair(id, reconcile.RepairHow{GiveUpClaims: true})))
	h.RequireBooks(id, 10)
}

// What the stream holds still comes back of a redeemed claim, too.
func TestRestored_ARedeemThatTheStreamTells(t *testing.T) {
	t.Parallel()
	h := newWitnessed(t)
	id := h.Create(100, nil)
	redeemAroundADump(h, id)
	h.RequireBooks(id, 6)
}

// redeemAroundADump has three claims made before a dump and three behind it in a campaign of one shard or a shard, and one of each
// redeemed. All are there again after the dump is restored.
func redeemAroundADump(h *syncertest.Stack, lot string) {
	h.T.Helper()
	early := h.Take(lot, syncertest.Asks("early", 3)...)
	restore := putBack(h)
	late := h.Take(lot, syncertest.Asks("late", 3)...)
	resolver := resolve.NewResolver(h.DB, resolve.NewRelay(h.DB, h.Scripts, nil), syncertest.Quiet())
	for _, claim := range []string{early[0], late[1]} {
		_, err := resolver.Redeem(h.T.Context(), claim, "order-"+claim)
		require.NoError(h.T, err)
	}
	h.Sync()
	restore()
	require.Equal(h.T, 1, look(h))
	campaignID, shard := models.SplitShardID(lot)
	require.Equal(h.T, 1+min(1, shard), refill(h), "and the reserve")
	var orders []string
	require.NoError(h.T, h.DB.Raw("SELECT order_id FROM claims WHERE campaign_id = ? AND status = 'redeemed' ORDER BY seq", campaignID).
		Scan(&orders).Error)
	require.Equal(h.T, []string{"order-" + early[0], "order-" + late[1]}, orders)
}

// Units that were given back and sold again since are rows of more units than total, until the releases are back as well: from the records
// of claims in Redis, or from the stream if Redis evicted the campaign. The counters go with the rows all the while: nothing is left to
// count again.
func TestRestored_UnitsThatWereSoldAgain(t *testing.T) {
	t.Parallel()
	for name, isEvicted := range map[string]bool{"and are in redis": false, "and evicted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newWitnessed(t)
			id := h.Create(10, nil)
			early := h.Take(id, syncertest.Asks("early", 10)...)
			restore := putBack(h)
			resolver := resolve.NewResolver(h.DB, resolve.NewRelay(h.DB, h.Scripts, nil), syncertest.Quiet())
			for _, claim := range early[:6] {
				_, err := resolver.Release(t.Context(), claim, "no more wanted")
				require.NoError(t, err)
			}
			h.Take(id, syncertest.Asks("late", 4)...)
			h.Sync()
			if isEvicted {
				c := h.Campaign(id)
				evicted, err := h.Scripts.Evict(t.Context(), &c, 0)
				require.NoError(t, err)
				require.True(t, evicted)
			}
			restore()
			require.Equal(t, 1, look(h))
			done := h.Repair(id, reconcile.RepairHow{})
			require.Empty(t, differences(done))
			require.NotContains(t, whats(done.Steps), reconcile.RepairCampaigns)
			c := h.Campaign(id)
			require.Equal(t, []int64{8, 2, 14, 6}, []int64{c.Claimed, c.Remaining, c.SyncedSeq, c.ReleasedClaims})
			require.Equal(t, 6, rowsOf(h, id, "status = 'released'"))
			require.Len(t, h.Take(id, syncertest.Asks("last", 2)...), 2)
			requireSettled(h, id)
		})
	}
}

// A shard gets back what a campaign of its own would: rows, and what became of them. Its counters go with its rows all the while.
func TestRestored_AShard(t *testing.T) {
	t.Parallel()
	s := newSale(t, false)
	one := models.ShardID(s.id, 1)
	s.refill(1, 10)
	redeemAroundADump(s.Stack, one)
	require.Empty(t, s.Compare(s.id).Differences)
	var recounted int64
	require.NoError(t, s.DB.Raw("SELECT COUNT(*) FROM repairs WHERE campaign_id = ? AND what = ?", one, reconcile.RepairCampaigns).Scan(&recounted).Error)
	require.Zero(t, recounted)
}

// No flush is lost, but a redeem: how far MySQL had recorded the stream tells, and the hold does not end in the meantime.
func TestRestored_ARedeemAlone(t *testing.T) {
	t.Parallel()
	h := newWitnessed(t)
	id := h.Create(100, func(c *models.Campaign) { c.HoldForMs = 1 })
	ids := h.Take(id, syncertest.Asks("early", 3)...)
	watcher := h.Maintainer()
	watch := func() int {
		broken, err := watcher.Watch(t.Context())
		require.NoError(t, err)
		return broken
	}
	require.Zero(t, watch())
	restore := putBack(h)
	relay := resolve.NewRelay(h.DB, h.Scripts, nil)
	_, err := resolve.NewResolver(h.DB, relay, syncertest.Quiet()).Redeem(t.Context(), ids[0], "order-1")
	require.NoError(t, err)
	h.Sync()
	require.Zero(t, watch())
	restore()

	expirer := resolve.NewExpirer(relay, h.Hydrator().Intact, nil)
	expired, err := expirer.Expire(t.Context())
	require.ErrorIs(t, err, campaigns.ErrLost)
	require.Zero(t, expired)
	require.Equal(t, 1, watch())
	require.Contains(t, h.Campaign(id).ResidencyReason, "mysql was rolled back: it had recorded the claim stream up to ")
	expired, err = expirer.Expire(t.Context())
	require.NoError(t, err, "it is told once")
	require.Zero(t, expired)
	require.Equal(t, 1, refill(h))
	expired, err = expirer.Expire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, expired)
	var order string
	require.NoError(t, h.DB.Raw("SELECT order_id FROM claims WHERE id = ? AND status = 'redeemed'", ids[0]).Scan(&order).Error)
	require.Equal(t, "order-1", order)
}

// The control: a claim stream that starts over is no MySQL that was restored.
func TestRestored_ControlAStreamThatBeginsAnew(t *testing.T) {
	t.Parallel()
	h := newWitnessed(t)
	h.Take(h.Create(100, nil), syncertest.Asks("early", 3)...)
	require.Zero(t, look(h))
	require.NoError(t, h.Redis.Del(t.Context(), lua.StreamKey(0)).Err())
	require.Equal(t, 1, look(h))
	var loss string
	require.NoError(t, h.DB.Raw("SELECT loss FROM streams WHERE `partition` = 0").Scan(&loss).Error)
	require.Contains(t, loss, "redis was rolled back")
	require.NotContains(t, loss, "mysql")
	require.Zero(t, look(h))
}

// MySQL is restored, and Redis to a later moment: what an API process saw since then no one has. It is counted, and left to a person.
func TestRestored_BothToDifferentMoments(t *testing.T) {
	t.Parallel()
	h := newWitnessed(t)
	id := h.Create(100, nil)
	h.Take(id, syncertest.Asks("early", 10)...)
	restore := putBack(h)
	h.Take(id, syncertest.Asks("middle", 10)...)
	require.NoError(t, h.Redis.Save(t.Context()).Err())
	h.Take(id, syncertest.Asks("tail", 5)...)
	rollBack(h)
	restore()

	require.Equal(t, 1, look(h))
	_, err := h.Hydrator().Recover(t.Context(), id, lua.Position{Epoch: 1, Seq: 25})
	require.ErrorIs(t, err, campaigns.ErrLost)
	var log testenv.Buffer
	reconciler := reconcile.New(h.DB, h.Scripts, h.Hydrator(), slog.New(slog.NewTextHandler(&log, nil)), nil)
	maintainer := residency.NewMaintainer(h.Hydrator(), time.Hour, reconciler.Restore, nil)
	for range 2 {
		refilled, err := maintainer.Attend(t.Context(), true)
		require.NoError(t, err)
		require.Zero(t, refilled)
	}
	require.Equal(t, 1, strings.Count(log.String(), "not all could be restored"), log.String())
	require.Contains(t, log.String(), "claims_brought_back=10")
	require.Contains(t, fmt.Sprint(h.Repair(id, reconcile.RepairHow{}).Left.Differences), "nothing is left of them: seq 21 to 25")
	require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome)
	done := h.Repair(id, reconcile.RepairHow{GiveUpClaims: true})
	require.Empty(t, differences(done))
	h.RequireBooks(id, 20)
}
