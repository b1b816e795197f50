package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/consumer"
	"dibs/consumer/redisbatch"
	"dibs/finance"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

// The stream's events, and their number of users.
const (
	creditEvents   = 100_000
	creditUsers    = 20_000
	creditsOneEach = 10_000 // events measured with a transaction each
)

// benchFinance credits a stream of packets, compared with a
// group that only reads, and with a transaction per credit.
func benchFinance(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b)}
	var sides, compare []func()
	for _, st := range stores(b) {
		s.Facts = append(s.Facts, st.version(b))
		on := func(what string) string { return st.name + ": " + what }
		ours, raw, each := on("dibs finance"), on("the group, reading only"), on("a transaction a credit, 8 connections")
		sides = append(sides,
			func() { s.credits(b, r, st, ours, amount(creditEvents), st.books) },
			func() {
				s.credits(b, r, nil, raw, amount(creditEvents), func(*testing.B) (consumer.HandleFunc, func()) {
					return func(context.Context, event.Event, []byte) error { return nil }, func() {}
				})
			},
			func() { s.add(each, "credits/s", st.creditEach(b, amount(creditsOneEach), 8)) },
		)
		compare = append(compare, func() {
			s.ratio(b, ours+" / reading only", ours, raw, 0)
			s.ratio(b, ours+" / a transaction a credit", ours, each, 0)
		})
	}
	s.takeTurns(sides)
	for _, ratios := range compare {
		ratios()
	}
	s.note(fmt.Sprintf("%d packets of %d users wait in one stream; from the first read to the last commit, reading and acking included.",
		amount(creditEvents), creditUsers))
	s.note("Reading only: the same consumer.Consumer with a handler that returns nil. A transaction a credit: one INSERT and one UPDATE.")
}

func credit(n int) event.Event {
	return event.Event{
		V: event.Version, Type: event.ClaimAccepted, ID: fmt.Sprintf("019c0000-0000-7000-8000-%012d", n), CampaignID: "rain",
		UserID: fmt.Sprintf("user-%d", n%creditUsers), Quantity: 1, Seq: int64(n) + 1, Epoch: 1, At: models.NewTime(time.Now()),
		PacketID: fmt.Sprintf("_%08d", n), Amount: new(int64(1 + n%2000)), Currency: "CNY",
	}
}

// publishCredits fills the stream like claim.lua.
func (r *broker) publishCredits(b *testing.B, n int) {
	b.Helper()
	require.NoError(b, r.rdb.Del(b.Context(), lua.StreamKey(0)).Err())
	for from := 0; from < n; from += 1000 {
		_, err := r.rdb.Pipelined(b.Context(), func(p redis.Pipeliner) error {
			for i := from; i < min(from+1000, n); i++ {
				e := credit(i)
				payload, err := json.Marshal(&e)
				if err != nil {
					return err
				}
				p.XAdd(b.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: []any{
					"_watermill_message_uuid", e.ID, "metadata", "", "payload", payload,
				}})
			}
			return nil
		})
		require.NoError(b, err)
	}
}

// books opens a store's empty accounts, and returns a function
// that closes them.
func (s *store) books(b *testing.B) (handle consumer.HandleFunc, done func()) {
	b.Helper()
	books, err := finance.NewBooks(finance.Config{DB: s.gorm, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	return books.Handle, func() { require.NoError(b, books.Close(longAfter(b))) }
}

// credits runs a service until it has taken all events of the
// stream; unless nil, st must then have them.
func (s *sheet) credits(
	b *testing.B, r *broker, st *store, name string, events int, open func(*testing.B) (consumer.HandleFunc, func()),
) {
	if st != nil {
		st.clearAccounts(b)
	}
	r.publishCredits(b, events)
	handle, done := open(b)
	var left atomic.Int64
	left.Store(int64(events))
	all := make(chan struct{})
	service, err := consumer.New(consumer.Config{
		Config: redisbatch.Config{
			Client: r.rdb, Group: finance.Group, Name: "bench", Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		},
		ReadAhead: true,
		Handle: func(ctx context.Context, e event.Event, payload []byte) error {
			err := handle(ctx, e, payload)
			if err == nil && left.Add(-1) == 0 {
				close(all)
			}
			return err
		},
	})
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- service.Run(ctx) }()
	select {
	case <-all:
	case <-ctx.Done():
	}
	took := time.Since(start)
	cancel()
	require.NoError(b, <-ended)
	done()
	require.Zero(b, left.Load(), "events are not taken")
	if st != nil {
		st.requireCredited(b, events)
	}
	s.add(name, "credits/s", float64(events)/took.Seconds())
}

func (s *store) creditEach(b *testing.B, events, connections int) float64 {
	b.Helper()
	s.clearAccounts(b)
	var next atomic.Int64
	group, ctx := errgroup.WithContext(b.Context())
	start := time.Now()
	for range connections {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < events; i = int(next.Add(1)) - 1 {
				e := credit(i)
				if err := s.creditOne(ctx, &e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
	took := time.Since(start)
	s.requireCredited(b, events)
	return float64(events) / took.Seconds()
}

func (s *store) creditOne(ctx context.Context, e *event.Event) error {
	tx, err := s.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	at := e.At.UTC()
	_, err = tx.ExecContext(ctx, "INSERT INTO account_entries (claim_id, user_id, campaign_id, packet_id, amount, currency, claimed_at,"+
		" credited_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", e.ID, e.UserID, e.CampaignID, e.PacketID, *e.Amount, e.Currency, at, at)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO accounts (user_id, currency, amount, entries, updated_at) VALUES (?, ?, ?, 1, ?)"+
		" ON DUPLICATE KEY UPDATE amount = amount + VALUES(amount), entries = entries + 1", e.UserID, e.Currency, *e.Amount, at)
	if err != nil {
		return err
	}
	return tx.Commit()
}

func (s *store) clearAccounts(b *testing.B) {
	b.Helper()
	for _, table := range []string{"account_entries", "accounts"} {
		s.exec(b.Context(), b, "TRUNCATE TABLE "+table)
	}
}

// requireCredited requires that entries and accounts equal the
// sum of the events.
func (s *store) requireCredited(b *testing.B, events int) {
	b.Helper()
	var due, entries, held int64
	for i := range events {
		due += *credit(i).Amount
	}
	require.NoError(b, s.sql.QueryRowContext(b.Context(), "SELECT SUM(amount) FROM account_entries").Scan(&entries))
	require.NoError(b, s.sql.QueryRowContext(b.Context(), "SELECT SUM(amount) FROM accounts").Scan(&held))
	require.Equal(b, []int64{due, due}, []int64{entries, held})
}
