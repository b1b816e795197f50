package e2e

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dibs/internal/crowd"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/oracle"
	"dibs/internal/testkit/testenv"

	"github.com/stretchr/testify/require"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// The embedded Redis keeps nothing, so a stop must drain it.
func TestServeHasEverythingAcceptedInItsFileWhenItEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve := newProcess(t, "serve", map[string]string{"DIBS_DATA_DIR": dir})
	users := testenv.Pick(10_000, 20_000)
	c := openCampaign(t, serve.url, campaign{Total: int64(2 * users), PerUser: 2})
	rush := startRush(t, crowd.Plan{
		BaseURLs: []string{serve.url}, CampaignID: c.ID, Users: users, Connections: 50,
		Quantity: func(user int) int64 { return int64(user%2) + 1 },
		Once:     func(int) bool { return true }, // no process is left for a retry
	})
	rush.reaches(users / 10)
	serve.stop()
	tally := rush.wait()
	require.Positive(t, tally.Refused["unreached"], "the stop came in mid-rush")

	file, err := sqlstore.Open(t.Context(), sqlstore.Config{Path: filepath.Join(dir, "dibs.db"), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, sqlstore.Close(file)) }()
	db, err := file.DB()
	require.NoError(t, err)
	rows, err := oracle.Read(t.Context(), db, c.ID)
	require.NoError(t, err)
	var wrong report
	wrong.compare(rows, c, tally)
	require.Empty(t, wrong, "%d rows", len(rows.Rows))

	units := tally.Units
	goesOn := func(user string) {
		t.Helper()
		got := claimUntilAnswered(t, serve.url, c.ID, user, 1, user)
		require.Equal(t, http.StatusCreated, got.status, got.body)
		units++
		eventually(t, drainWithin, "the claim does not get its row", func() bool {
			stock, err := stockOf(t.Context(), serve.url, c.ID)
			return err == nil && stock.Synced == units && stock.Claimed == units && stock.Remaining == c.Total-units
		})
	}
	serve.restart()
	goesOn("after a stop")
	serve.kill9()
	serve.restart() // everything had its row, so nothing was lost
	goesOn("after a crash")
	replay := claimOnce(t, serve.url, c.ID, "after a stop", 1, "after a stop")
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"), replay.body)
	serve.stopBy(os.Interrupt) // as a person at a terminal
}

// With embedded servers no other process can read the stream. So
// serve must credit packets and the rest at a campaign's close
// by itself, and drain them at a stop.
func TestServeCreditsPacketsByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve := newProcess(t, "serve", map[string]string{"DIBS_DATA_DIR": dir})
	post := func(path string, body map[string]any) {
		t.Helper()
		key := ""
		if strings.HasSuffix(path, "/packets") {
			key = "once"
		}
		got := call(t, http.MethodPost, serve.url+"/v1/campaigns"+path, key, body)
		require.Equal(t, 2, got.status/100, got.body)
	}
	post("", map[string]any{"id": "rain", "kind": "packet", "currency": "CNY", "sender_id": "boss"})
	post("/rain/packets", map[string]any{"count": 5, "amount": 500, "split": "even"})
	for _, user := range []string{"ada", "bob"} {
		post("/rain/claims", map[string]any{"user_id": user})
	}
	post("/rain/close", nil)
	file, err := sqlstore.Open(t.Context(), sqlstore.Config{Path: filepath.Join(dir, "dibs.db"), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, sqlstore.Close(file)) }()
	balances := func() string {
		var all []string
		require.NoError(t, file.Raw("SELECT user_id || ' ' || amount || currency FROM accounts ORDER BY user_id").Scan(&all).Error)
		return strings.Join(all, ", ")
	}
	eventually(t, drainWithin, "the rest did not go back", func() bool { return balances() == "ada 100CNY, bob 100CNY, boss 300CNY" })
	post("", map[string]any{"id": "more", "kind": "packet", "currency": "CNY"})
	post("/more/packets", map[string]any{"count": 5, "amount": 500, "split": "even"})
	post("/more/claims", map[string]any{"user_id": "eve"})
	serve.stop()
	require.Equal(t, "ada 100CNY, bob 100CNY, boss 300CNY, eve 100CNY", balances())
}
