package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"

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
}

// putBack keeps the rows of MySQL; what it returns brings them back.
func putBack(h *syncertest.Stack) (restore func()) {
	h.T.Helper()
	tables := []string{"definitions", "lots", "claims", "claim_orders", "ledger_events", "outbox", "parked_events", "stock_flushes", "streams", "stock_moves", "packets"}
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
