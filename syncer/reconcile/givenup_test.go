package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"
	"dibs/syncer/resolve"

	"github.com/stretchr/testify/require"
)

const waitMost, waitPoll = 5 * time.Second, 5 * time.Millisecond

// differences are what is left, as one text.
func differences(done reconcile.Repaired) string { return strings.Join(done.Left.Differences, "\n") }

// requireSettled checks that a second repair finds nothing to change.
func requireSettled(h *syncertest.Stack, id string) {
	h.T.Helper()
	require.Empty(h.T, h.Repair(id, reconcile.RepairHow{}).Steps, "the second time")
}

// rollBack puts Redis back to its last snapshot.
func rollBack(h *syncertest.Stack) {
	h.T.Helper()
	require.NoError(h.T, h.Redis.ConfigSet(h.T.Context(), "save", "").Err())
	h.Server.Kill()
	h.Server.Start()
	h.Group()
}

// putBack keeps the rows of MySQL; what it returns brings them back.
func putBack(h *syncertest.Stack) (restore func()) {
	h.T.Helper()
	tables := []string{"lots", "claims", "claim_orders", "ledger_events", "outbox", "parked_events", "stock_flushes", "streams", "stock_moves", "packets"}
	columns := make(map[string]string)
	for _, table := range tables {
		var stored string
		require.NoError(h.T, h.DB.Raw("SELECT GROUP_CONCAT(CONCAT('`', column_name, '`')) FROM information_schema.columns"+
			" WHERE table_schema = DATABASE() AND table_name = ? AND COALESCE(generation_expression, '') = ''", table).Scan(&stored).Error)
		columns[table] = stored
		h.Exec("DROP TABLE IF EXISTS dump_" + table)
		h.Exec("CREATE TABLE dump_" + table + " AS SELECT " + stored + " FROM " + table)
	}
	return func() {
		for _, table := range tables {
			h.Exec("DELETE FROM " + table)
			h.Exec("INSERT INTO " + table + " (" + columns[table] + ") SELECT * FROM dump_" + table)
		}
	}
}

// A MySQL that was restored from a dump while Redis went on gets its rows from Redis, though their events are trimmed.
func TestRepair_AMySQLThatWasPutBackGetsItsRowsFromRedis(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, func(c *models.Campaign) { c.PerUser = 9 })
	h.Take(id, syncertest.Asks("early", 10)...)
	restore := putBack(h)
	late := h.Take(id, syncertest.Asks("late", 20)...)
	three := syncertest.Ask("late-1", "three")
	three.Quantity = 3
	h.Take(id, three)
	_, err := resolve.NewResolver(h.DB, resolve.NewRelay(h.DB, h.Scripts, nil), syncertest.Quiet()).Release(t.Context(), late[3], "")
	require.NoError(t, err)
	require.NoError(t, h.Redis.XGroupSetID(t.Context(), lua.StreamKey(0), models.GroupSyncer, "$").Err()) // it passes the release over
	trim(h)
	restore()
	before := h.Content(id)

	require.NotEmpty(t, h.Compare(id).Differences)
	done := h.Repair(id, reconcile.RepairHow{})
	require.Empty(t, differences(done))
	require.Equal(t, []string{reconcile.RepairClaims, reconcile.RepairClaims}, whats(done.Steps))
	require.Equal(t, before, h.Content(id), "Redis is as it was")
	require.Equal(t, int64(1), h.Campaign(id).Epoch, "and took claims all the while")
	requireSettled(h, id)
	c := h.Campaign(id)
	require.Equal(t, []int64{32, 68, 31, 0, 1}, []int64{c.Claimed, c.Remaining, c.SyncedSeq, c.LostClaims, c.ReleasedClaims})
	require.Equal(t, models.OutcomeReplayed, h.Claim(id, three)[0].Outcome)
	h.Take(id, syncertest.Ask("later", ""))
	require.Empty(t, h.Compare(id).Differences)
}

// A dump that is older than the load in Redis: the campaign was evicted then.
func TestRepair_AMySQLThatKnowsAnEarlierLoadIsBroughtUpToRedis(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	h.Take(id, syncertest.Asks("early", 5)...)
	require.Eventually(t, func() bool { return h.Evict(residency.MinIdle) == 1 }, waitMost, waitPoll)
	restore := putBack(h)
	require.NoError(t, h.Hydrate(id))
	h.Take(id, syncertest.Asks("late", 5)...)
	trim(h)
	restore()

	require.Contains(t, fmt.Sprint(h.Compare(id).Differences), "redis holds load 2, and the campaign is not in redis by the books of mysql")
	require.ErrorIs(t, h.Hydrate(id), campaigns.ErrLost)
	done := h.Repair(id, reconcile.RepairHow{})
	require.Empty(t, differences(done))
	require.Equal(t, []string{reconcile.RepairClaims, reconcile.RepairRedis}, whats(done.Steps))
	h.RequireBooks(id, 10)
	require.Equal(t, int64(3), h.Campaign(id).Epoch)
	requireSettled(h, id)
}

// Redis is restored and hands out seqs once more. Claims that lost theirs get new ones while stock lasts, the others are named.
func TestRepair_AClaimThatLostItsPlaceGetsANewOneWhileStockLasts(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(20, func(c *models.Campaign) { c.PerUser = 1 })
	h.Take(id, syncertest.Asks("early", 5)...)
	require.NoError(t, h.Redis.Save(t.Context()).Err())
	h.Take(id, syncertest.Asks("late", 11)...)
	rollBack(h)
	again := h.Claim(id, syncertest.Asks("again", 8)...) // before anybody notices
	require.Equal(t, models.OutcomeClaimed, again[7].Outcome)
	h.Sync()
	require.Equal(t, 8, h.ParkedRows(id, "discarded_at IS NULL"))

	done := h.Repair(id, reconcile.RepairHow{})
	require.Equal(t, 4, strings.Count(strings.Join(whats(done.Steps), " "), reconcile.RepairPlaces), "20 less 16 units are left")
	require.Contains(t, done.Steps[0].ValueAfter, "its new seq is 17, with 1 units")
	require.Equal(t, 4, strings.Count(differences(done), "lost its seq and can have no other: 0 units are left"))
	h.RequireBooks(id, 20)
	requireSettled(h, id)
	require.Equal(t, models.OutcomeSoldOut, h.Claim(id, syncertest.Ask("more", ""))[0].Outcome)
	h.Redis.XGroupDestroy(t.Context(), lua.StreamKey(0), models.GroupSyncer)
	h.Group()
	h.Sync() // all events come again
	h.RequireBooks(id, 20)

	done = h.Repair(id, reconcile.RepairHow{GiveUpClaims: true})
	require.Empty(t, differences(done))
	require.Len(t, done.GivenUp, 4)
	require.ElementsMatch(t, done.GivenUp, toldGivenUp(h, id)[0].IDs)
	h.RequireBooks(id, 20)
	requireSettled(h, id)
}

// toldGivenUp are the events of claims that were given up that wait for the relay.
func toldGivenUp(h *syncertest.Stack, id string) (events []models.Event) {
	h.T.Helper()
	var payloads [][]byte
	require.NoError(h.T, h.DB.Raw("SELECT payload FROM outbox WHERE campaign_id = ? ORDER BY id", id).Scan(&payloads).Error)
	for _, payload := range payloads {
		e, err := models.DecodeEvent(payload)
		require.NoError(h.T, err)
		if e.Type == models.EventClaimsGivenUp {
			events = append(events, e)
		}
	}
	return events
}

// What MySQL counts, and neither a row nor an event nor Redis knows, is given up when that is asked for, and not before.
func TestRepair_GivesNothingUpUnlessAsked(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := synced(h)
	h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq IN (4, 5, 9)", id)
	require.NoError(t, h.Redis.FlushAll(t.Context()).Err()) //nolint:forbidigo // its own Redis, and the fault itself
	h.Group()
	require.ErrorIs(t, h.Hydrate(id), campaigns.ErrLost)
	for range 2 {
		done := h.Repair(id, reconcile.RepairHow{})
		require.Empty(t, done.Steps)
		require.Contains(t, differences(done), "nothing is left of them: seq 4 to 5, seq 9;")
		c := h.Campaign(id)
		require.Equal(t, []int64{10, 10, 90, 0}, []int64{c.Claimed, c.SyncedSeq, c.Remaining, c.LostClaims})
		require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome)
	}
	done := h.Repair(id, reconcile.RepairHow{GiveUpClaims: true})
	require.Empty(t, differences(done))
	require.Equal(t, [][2]int64{{4, 5}, {9, 9}}, toldGivenUp(h, id)[0].Seqs)
	h.RequireBooks(id, 7)
	require.Equal(t, int64(3), h.Campaign(id).LostClaims)
	requireSettled(h, id)
}

// Rows of a closed campaign that someone moved away are no reason to lower what it counts.
func TestRepair_LowersNothingOfAClosedCampaign(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := synced(h)
	h.Shut(id)
	require.Eventually(t, func() bool { return h.Evict(residency.MinIdle) == 1 }, waitMost, waitPoll)
	trim(h)
	h.Exec("DELETE FROM claims WHERE campaign_id = ?", id)
	done := h.Repair(id, reconcile.RepairHow{})
	require.Empty(t, done.Steps)
	require.Contains(t, differences(done), "seq 1 to 10;")
	c := h.Campaign(id)
	require.Equal(t, []int64{10, 10, 90, 0}, []int64{c.Claimed, c.SyncedSeq, c.Remaining, c.LostClaims})
}
