package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"dibs/internal/testkit/oracle"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"

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
	events []event.Event // published
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
			e := event.Event{
				V: event.Version, Type: event.ClaimAccepted, ID: fmt.Sprintf("019c0000-0000-7000-8000-%012d", i), CampaignID: "rain",
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
