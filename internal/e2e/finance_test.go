package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"dibs/internal/oracle"
	"dibs/internal/sqlstore"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// ledger is a finance service's surroundings: events in the
// streams, processes that credit them, and its accounts.
type ledger struct {
	servers
	t        *testing.T
	settings map[string]string

	mu     sync.Mutex
	events []models.Event // published
}

func newLedger(t *testing.T, w setup) *ledger {
	t.Helper()
	binary(t)
	l := &ledger{servers: newServers(t, w), t: t}
	// no process applies its events to MySQL
	l.settings = map[string]string{"DIBS_READ_AHEAD": "true",

		"DIBS_PARTITIONS": fmt.Sprint(max(w.partitions, 1)), "DIBS_REDIS_URL": l.redisURL, "DIBS_MYSQL_DSN": l.dsn, "DIBS_STREAM_KEEP": "0s",
	}
	maps.Copy(l.settings, w.settings)
	const installation = "01a21915-ca37-7b0c-84c8-92dd40be362c test" // the events' installation
	_, err := l.db.ExecContext(t.Context(), "INSERT INTO settings (name, value) VALUES ('installation', ?)", installation)
	require.NoError(t, err)
	require.NoError(t, l.rdb.HSet(t.Context(), lua.InfoKey, "installation", installation).Err())
	return l
}

// launch starts a role's process with additional settings.
func (l *ledger) launch(command string, more map[string]string) *process {
	l.t.Helper()
	settings := maps.Clone(l.settings)
	maps.Copy(settings, more)
	return newProcess(l.t, command, settings)
}

// publish writes n events of taken packets, as claim.lua does,
// and a coupon's for each ten.
func (l *ledger) publish(n int) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	first := len(l.events)
	_, err := l.rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for i := first; i < first+n; i++ {
			amount := int64(i%997 + 1)
			e := models.Event{
				V: models.EventVersion, Type: models.EventClaimAccepted, ID: fmt.Sprintf("019c0000-0000-7000-8000-%012d", i), CampaignID: "rain",
				UserID: fmt.Sprintf("user-%d", i%100), Quantity: 1, Seq: int64(i + 1), Epoch: 1, At: models.NewTime(time.Now()),
				PacketID: fmt.Sprintf("p%06d", i), Amount: &amount, Currency: "EUR",
			}
			if i%10 == 9 {
				e.CampaignID, e.PacketID, e.Amount, e.Currency = "coupons", "", nil, ""
			}
			payload, err := json.Marshal(e)
			require.NoError(l.t, err)
			l.events = append(l.events, e)
			p.XAdd(context.Background(), &redis.XAddArgs{Stream: lua.StreamKey(i % l.partitions), Values: []any{
				"_watermill_message_uuid", e.ID, "metadata", "", "payload", payload,
			}})
		}
		return nil
	})
	require.NoError(l.t, err)
}

func (l *ledger) credited() (n int) {
	if l.db.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM account_entries").Scan(&n) != nil {
		return -1
	}
	return n
}

func (l *ledger) eventuallyCredited(n int) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.credited() >= n }, drainWithin, pollEvery, "entries, short of %d", n)
}

// due counts the events that need an entry, and sums them.
func (l *ledger) due() (n int, sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.events {
		if l.events[i].Amount != nil {
			n++
			sum += *l.events[i].Amount
		}
	}
	return n, sum
}

// requireCredited waits for each event's entry, and requires
// that there are no others and that accounts add up.
func (l *ledger) requireCredited() {
	l.t.Helper()
	n, due := l.due()
	l.eventuallyCredited(n)
	var entries int
	var sum int64
	require.NoError(l.t, l.db.QueryRowContext(l.t.Context(), "SELECT COUNT(*), SUM(amount) FROM account_entries").Scan(&entries, &sum))
	require.Equal(l.t, []int64{int64(n), due}, []int64{int64(entries), sum})
	var wrong report
	require.NoError(l.t, oracle.Accounts(l.t.Context(), l.db, wrong.addf))
	require.Empty(l.t, wrong)
}

func (l *ledger) reopen(dsn string) {
	l.t.Helper()
	db, err := sqlstore.Open(l.t.Context(), sqlstore.Config{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(l.t, err)
	l.t.Cleanup(func() { require.NoError(l.t, sqlstore.Close(db)) })
	l.db, err = db.DB()
	require.NoError(l.t, err)
}

// An event that can't be credited must be parked without delaying others, and
// be listed, replayed and discarded by command. The service has its own
// database and no access to Dibs'.
func TestFinanceParksAndReplaysByCommand(t *testing.T) {
	t.Parallel()
	l := newLedger(t, setup{})
	dibs := l.settings["DIBS_MYSQL_DSN"]
	delete(l.settings, "DIBS_MYSQL_DSN")
	l.settings["DIBS_FINANCE_DSN"] = testenv.Database(t).DSN
	got := runDibs(t, l.settings, "finance")
	requireRefusal(t, got, exitFailed, "dibs migrate")
	got = runDibs(t, map[string]string{"DIBS_MYSQL_DSN": dibs, "DIBS_FINANCE_DSN": l.settings["DIBS_FINANCE_DSN"]}, "migrate")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "00100_baseline.sql")
	l.reopen(l.settings["DIBS_FINANCE_DSN"])
	exec := func(statement string) {
		_, err := l.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	exec("INSERT INTO account_entries (claim_id, user_id, campaign_id, packet_id, amount, currency, claimed_at, credited_at)" +
		" VALUES ('019c0000-0000-7000-8000-000000000003', 'an impostor', 'rain', 'p000003', 4, 'EUR', NOW(3), NOW(3))")
	require.NoError(t, l.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: []any{"junk", "1"}}).Err())
	l.publish(100)
	service := l.launch("finance", nil)
	n, _ := l.due()
	l.eventuallyCredited(n)
	service.stop()

	got = runDibs(t, l.settings, "finance", "parked")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "019c0000-0000-7000-8000-000000000003")
	got = runDibs(t, l.settings, "finance", "parked", "-o", "json")
	require.Equal(t, 2, strings.Count(got.stdout, "\n"), got.stdout)
	require.Contains(t, got.stdout, "another entry has this id")
	var junk struct{ ID, Reason string }
	require.NoError(t, json.NewDecoder(strings.NewReader(got.stdout)).Decode(&junk))
	require.Contains(t, junk.Reason, "uuid key is missing")

	got = runDibs(t, l.settings, "finance", "replay")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stdout, "credited 0, still parked 2")
	require.Contains(t, got.stderr, "2 of 2 messages")
	exec("DELETE FROM account_entries WHERE user_id = 'an impostor'")
	got = runDibs(t, l.settings, "finance", "replay", "019c0000-0000-7000-8000-000000000003", "-o", "json")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.JSONEq(t, `{"handled":1,"left":null}`, got.stdout)
	requireRefusal(t, runDibs(t, l.settings, "finance", "discard"), exitUsage, "MESSAGE is missing")
	got = runDibs(t, l.settings, "finance", "discard", junk.ID)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, junk.ID)
	requireRefusal(t, runDibs(t, l.settings, "finance", "discard", junk.ID), exitFailed, "no such parked message")
	got = runDibs(t, l.settings, "finance", "replay")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "credited 0, still parked 0")
}
