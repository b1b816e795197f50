package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// ledger is a finance service's view of the world: events in the streams, processes that credit them, and the books.
type ledger struct {
	servers
	t        *testing.T
	settings map[string]string

	mu     sync.Mutex
	events []models.Event // that were published
}

func newLedger(t *testing.T, w wishes) *ledger {
	t.Helper()
	binary(t)
	l := &ledger{servers: newServers(t, w), t: t}
	l.settings = map[string]string{"DIBS_READ_AHEAD": "true", // nobody applies what it is given to MySQL

		"DIBS_PARTITIONS": fmt.Sprint(max(w.partitions, 1)), "DIBS_REDIS_URL": l.redisURL, "DIBS_MYSQL_DSN": l.dsn, "DIBS_STREAM_KEEP": "0s",
	}
	maps.Copy(l.settings, w.settings)
	const installation = "01a21915-ca37-7b0c-84c8-92dd40be362c test" // the events are its own
	_, err := l.db.ExecContext(t.Context(), "INSERT INTO settings (name, value) VALUES ('installation', ?)", installation)
	require.NoError(t, err)
	require.NoError(t, l.rdb.HSet(t.Context(), lua.InfoKey, "installation", installation).Err())
	return l
}

// launch starts a process of a role with these settings besides.
func (l *ledger) launch(command string, more map[string]string) *process {
	l.t.Helper()
	settings := maps.Clone(l.settings)
	maps.Copy(settings, more)
	return newProcess(l.t, command, settings)
}

// publish writes n events of packets taken, as claim.lua does, and one of a coupon for each ten.
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

// due is how many events ask for an entry.
func (l *ledger) due() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.events {
		if l.events[i].Amount != nil {
			n++
		}
	}
	return n
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

// faults compares books with the events that were published: Σ events = Σ entries = Σ accounts, user by user.
func (l *ledger) faults() (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := map[string]string{}
	accounts := map[string]int64{}
	for _, e := range l.events {
		if e.Amount != nil {
			due[e.ID] = fmt.Sprint(e.UserID, " ", e.CampaignID, " ", e.PacketID, " ", *e.Amount, e.Currency)
			accounts[e.UserID] += *e.Amount
		}
	}
	l.scan("SELECT claim_id, CONCAT(user_id, ' ', campaign_id, ' ', packet_id, ' ', amount, currency) FROM account_entries", func(id, says string) {
		if due[id] != says {
			found = append(found, fmt.Sprintf("entry %s says %q, due was %q", id, says, due[id]))
		}
		delete(due, id)
	})
	for id, says := range due {
		found = append(found, fmt.Sprintf("no entry %s %q", id, says))
	}
	l.scan("SELECT user_id, CONCAT(SUM(amount), '') FROM accounts GROUP BY user_id", func(user, sum string) {
		if sum != fmt.Sprint(accounts[user]) {
			found = append(found, fmt.Sprintf("account of %s holds %s, due was %d", user, sum, accounts[user]))
		}
		delete(accounts, user)
	})
	for user := range accounts {
		found = append(found, "no account of "+user)
	}
	return found[:min(len(found), faultsMax)]
}

func (l *ledger) scan(query string, take func(key, value string)) {
	l.t.Helper()
	rows, err := l.db.QueryContext(l.t.Context(), query)
	require.NoError(l.t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key, value string
		require.NoError(l.t, rows.Scan(&key, &value))
		take(key, value)
	}
	require.NoError(l.t, rows.Err())
}

// Killed at random points while it credits in small batches, started again each time: every event has its one entry.
func TestFinanceKilledAtRandomPointsCreditsEachClaimOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t, wishes{partitions: 2, settings: map[string]string{"DIBS_FLUSH_SIZE": "20", "DIBS_FLUSH_INTERVAL": "2ms"}})
	service := l.launch("finance", map[string]string{"DIBS_NAME": "finance-1"})
	l.publish(2000)
	for range testenv.Pick(6, 100) {
		before := l.credited()
		l.publish(200)
		require.Eventually(t, func() bool { return l.credited() > before }, upTimeout, time.Millisecond)
		<-time.After(time.Duration(rand.Int64N(int64(30 * time.Millisecond)))) // anywhere in its work
		service.kill9()
		service.start()
	}
	service.awaitUp()
	l.eventuallyCredited(l.due())
	service.stop() // SIGTERM: exit 0
	require.Empty(t, l.faults())
}

// The finance service is away while the syncer trims behind everybody else: nothing of it is lost (I8).
func TestFinanceAwayWhileTheStreamIsTrimmedLosesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, wishes{})
	l.launch("consumer", nil)
	l.launch("syncer", nil)
	l.publish(1000)
	service := l.launch("finance", nil)
	l.eventuallyCredited(l.due())
	l.eventuallyHolds(1) // the one that MySQL has applied last
	service.stop()
	l.publish(3000)
	service.restart()
	l.eventuallyCredited(1000)
	service.kill9()
	l.publish(1000)
	unacked := l.unacked("finance")
	require.Positive(t, unacked)
	l.eventuallyHolds(unacked) // the trimmer works, and stops at what finance has not acked
	service.restart()
	l.eventuallyCredited(l.due())
	l.eventuallyHolds(1) // the one that MySQL has applied last
	require.Empty(t, l.faults())
}

// The control: the syncer does not know of the group, and trims what no one has credited. The books tell.
func TestFinanceUnregisteredAndAwayIsCaught(t *testing.T) {
	t.Parallel()
	l := newLedger(t, wishes{settings: map[string]string{"DIBS_GROUPS": "syncer"}})
	l.launch("consumer", nil)
	l.launch("syncer", nil)
	l.publish(1000)
	l.eventuallyHolds(1) // the one that MySQL has applied last
	l.launch("finance", nil)
	l.publish(100)
	l.eventuallyCredited(90)
	require.NotEmpty(t, l.faults())
	require.Less(t, l.credited(), l.due())
}

// trimSlack is how many entries more than it must a stream may hold: Redis trims by nodes.
const trimSlack = 100

// eventuallyHolds waits until the stream holds that many entries, and at most trimSlack more.
func (l *ledger) eventuallyHolds(n int64) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		held, err := l.rdb.XLen(context.Background(), lua.StreamKey(0)).Result()
		return err == nil && held >= n && held <= n+trimSlack
	}, drainWithin, pollEvery, "entries in the stream, not %d", n)
}

// unacked is how many entries are from the first on that a group has not acked.
func (l *ledger) unacked(group string) int64 {
	l.t.Helper()
	ctx := l.t.Context()
	pending, err := l.rdb.XPending(ctx, lua.StreamKey(0), group).Result()
	require.NoError(l.t, err)
	from := pending.Lower
	if pending.Count == 0 {
		groups, err := l.rdb.XInfoGroups(ctx, lua.StreamKey(0)).Result()
		require.NoError(l.t, err)
		for _, g := range groups {
			if g.Name == group {
				from = "(" + g.LastDeliveredID
			}
		}
	}
	entries, err := l.rdb.XRange(ctx, lua.StreamKey(0), from, "+").Result()
	require.NoError(l.t, err)
	return int64(len(entries))
}

// reopen looks into another database from now on.
func (l *ledger) reopen(dsn string) {
	l.t.Helper()
	db, err := sqlstore.Open(l.t.Context(), sqlstore.Config{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(l.t, err)
	l.t.Cleanup(func() { require.NoError(l.t, sqlstore.Close(db)) })
	l.db, err = db.DB()
	require.NoError(l.t, err)
}

// What can never be credited is parked and holds nothing up; it is listed, replayed and discarded by command. The service has
// a database of its own, and none of Dibs'.
func TestFinanceParksAndReplaysByCommand(t *testing.T) {
	t.Parallel()
	l := newLedger(t, wishes{})
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
	l.eventuallyCredited(l.due())
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
	require.Empty(t, l.faults())
	requireRefusal(t, runDibs(t, l.settings, "finance", "discard"), exitUsage, "MESSAGE is missing")
	got = runDibs(t, l.settings, "finance", "discard", junk.ID)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, junk.ID)
	requireRefusal(t, runDibs(t, l.settings, "finance", "discard", junk.ID), exitFailed, "no such parked message")
	got = runDibs(t, l.settings, "finance", "replay")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "credited 0, still parked 0")
}
