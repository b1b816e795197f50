package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models/event"
)

// errAway is a handler's error while its backend is away.
var errAway = errors.New("the ledger is away")

// ledger is a handler for tests that takes
// each event once, unless it has to refuse.
type ledger struct {
	mu    sync.Mutex
	says  func(e event.Event, attempt int) error // nil: takes all
	tries map[string]int
	taken map[string]bool
}

func (l *ledger) handle(ctx context.Context, e event.Event, payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tries == nil {
		l.tries, l.taken = map[string]int{}, map[string]bool{}
	}
	l.tries[e.ID]++
	if l.says != nil {
		if err := l.says(e, l.tries[e.ID]); err != nil {
			return err
		}
	}
	if !strings.Contains(string(payload), e.ID) || ctx.Err() != nil {
		return consumer.Permanent(errors.New("payload and event differ"))
	}
	l.taken[e.ID] = true
	return nil
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.taken)
}

func (l *ledger) triesOf(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tries[id]
}

type service struct {
	*role

	lot  *consumer.ParkingLot
	stop func()
}

func startService(t *testing.T, rdb redis.UniversalClient, change func(*consumer.Config)) *service {
	t.Helper()
	s := &service{role: &role{rdb: rdb, reg: prometheus.NewRegistry()}, lot: consumer.NewParkingLot(rdb, 2, "ledger")}
	cfg := consumer.Config{
		Config: quick(rdb, "ledger", s.reg), Partitions: 2, ReadAhead: true,
		Backoff: consumer.Backoff{Initial: 5 * time.Millisecond, Max: 20 * time.Millisecond},
	}
	change(&cfg)
	running, err := consumer.New(cfg)
	require.NoError(t, err)
	require.NoError(t, ensureGroups(t.Context(), rdb, 2, "ledger"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- running.Run(ctx) }()
	s.stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-done) })
	t.Cleanup(s.stop)
	return s
}

func (s *service) eventuallyPending(t *testing.T, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return s.pending(t, "ledger") == n }, patience, 2*time.Millisecond)
}

func (s *service) parked(t *testing.T) (list []consumer.Parked) {
	t.Helper()
	for p, err := range s.lot.All(t.Context()) {
		require.NoError(t, err)
		list = append(list, p)
	}
	return list
}

func (s *service) eventuallyParked(t *testing.T, n int) []consumer.Parked {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.parked(t)) == n }, patience, 2*time.Millisecond)
	return s.parked(t)
}

func claimID(n int) string { return fmt.Sprintf("0199c0de-7a3e-7bbb-8c1d-%012d", n) }

func TestService_RetriesParksAndGoesOn(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		books := &ledger{says: func(e event.Event, attempt int) error {
			switch {
			case e.ID == claimID(0):
				return errAway
			case e.ID == claimID(1):
				return consumer.Permanent(errors.New("no such account"))
			case e.ID == claimID(2) && attempt < 4:
				return errAway
			case e.ID == claimID(3) && attempt == 1:
				panic("a handler's own mistake")
			}
			return nil
		}}
		s := startService(t, rdb, func(c *consumer.Config) { c.Handle, c.Attempts = books.handle, 6 })
		for n := range 200 {
			s.claim(t, n%2, n)
		}
		require.Eventually(t, func() bool { return books.count() == 198 }, patience, 2*time.Millisecond, "all but two are taken, whatever the first says")
		require.Equal(t, 4, books.triesOf(claimID(2)))
		require.Equal(t, 2, books.triesOf(claimID(3)))
		parked := map[string]consumer.Parked{}
		for _, p := range s.eventuallyParked(t, 2) {
			parked[p.EventID] = p
		}
		require.Equal(t, "consumer: permanent: gave up after 6 attempts: the ledger is away", parked[claimID(0)].Reason)
		require.EqualValues(t, 6, parked[claimID(0)].Attempts)
		require.Equal(t, 6, books.triesOf(claimID(0)))
		p := parked[claimID(1)]
		require.Equal(t, "consumer: permanent: no such account", p.Reason)
		require.EqualValues(t, 1, p.Attempts)
		require.Equal(t, 1, p.Partition)
		require.Contains(t, p.Payload, claimID(1))
		s.eventuallyPending(t, 0)
	})
}

func TestService_WhatIsNotParkedStaysInTheStream(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	for n := range 5 {
		(&role{rdb: rdb}).claim(t, 0, n)
	}
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "default", "-xadd").Err())
	books := &ledger{says: func(event.Event, int) error { return consumer.Permanent(errors.New("no")) }}
	s := startService(t, rdb, func(c *consumer.Config) { c.Handle, c.ParkedMax, c.Window = books.handle, 2, 1 })
	waits := func(parked int, why string) {
		from := metric(t, s.reg, "retried_total")
		require.Eventually(t, func() bool { return metric(t, s.reg, "retried_total") > from+3 }, patience, time.Millisecond)
		require.Len(t, s.parked(t), parked, why)
		require.EqualValues(t, 1, s.pending(t, "ledger"), "it is tried again and again, and not acked")
	}
	waits(0, "Redis refuses it")
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "default", "+xadd").Err())
	s.eventuallyParked(t, 2)
	waits(2, "the lot is full")
	for range 3 {
		_, err := s.lot.Discard(t.Context(), s.parked(t)[0].ID)
		require.NoError(t, err)
		s.eventuallyParked(t, 2)
	}
	s.eventuallyPending(t, 0)
}

func TestParkingLot_Replay(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		books := &ledger{says: func(event.Event, int) error { return consumer.Permanent(errors.New("closed today")) }}
		s := startService(t, rdb, func(c *consumer.Config) { c.Handle = books.handle })
		for n := range 600 { // more than a page in one partition
			s.claim(t, min(n%5, 1), n)
		}
		_, err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: []any{"junk", "1"}}).Result()
		require.NoError(t, err)
		s.eventuallyParked(t, 601)
		s.stop()
		before, err := rdb.XLen(t.Context(), lua.StreamKey(1)).Result()
		require.NoError(t, err)

		books.says = func(e event.Event, _ int) error {
			switch e.ID {
			case claimID(4):
				return errAway
			case claimID(5):
				return consumer.Permanent(errors.New("no such account"))
			}
			return nil
		}
		_, err = s.lot.Replay(t.Context(), "nobody", books.handle)
		require.ErrorIs(t, err, consumer.ErrNoParked)
		one, err := s.lot.Replay(t.Context(), claimID(3), books.handle)
		require.NoError(t, err)
		require.Equal(t, consumer.Replay{Handled: 1}, one)

		all, err := s.lot.Replay(t.Context(), "", books.handle)
		require.NoError(t, err)
		require.Equal(t, 597, all.Handled)
		require.Len(t, all.Left, 3)
		reasons := map[string]string{}
		for _, p := range all.Left {
			reasons[p.EventID] = p.Reason
		}
		require.Equal(t, "the ledger is away", reasons[claimID(4)])
		require.Equal(t, "consumer: permanent: no such account", reasons[claimID(5)])
		require.Contains(t, reasons[""], "event: malformed", "what could not be read is tried, too")
		require.Len(t, s.parked(t), 3)
		require.Equal(t, 598, books.count())
		after, err := rdb.XLen(t.Context(), lua.StreamKey(1)).Result()
		require.NoError(t, err)
		require.Equal(t, before, after, "nothing returns to the claim stream")

		_, err = s.lot.Discard(t.Context(), claimID(5))
		require.NoError(t, err)
		require.Len(t, s.parked(t), 2)
	})
}

func TestService_ReplaysWhatItIsAskedFor(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		closed := func(event.Event, int) error { return consumer.Permanent(errors.New("closed today")) }
		books := &ledger{says: closed}
		s := startService(t, rdb, func(c *consumer.Config) { c.Handle = books.handle })
		for n := range 3 {
			s.claim(t, 0, n)
		}
		s.eventuallyParked(t, 3)
		s.stop()
		ids := map[string]string{}
		for _, p := range s.parked(t) {
			ids[p.EventID] = p.ID
		}
		require.NoError(t, s.lot.AskReplay(t.Context(), ids[claimID(0)], ids[claimID(1)], "p0/9-9"))
		books.says = func(e event.Event, attempt int) error {
			if e.ID == claimID(1) {
				return closed(e, attempt)
			}
			return nil
		}
		s = startService(t, rdb, func(c *consumer.Config) { c.Handle = books.handle })
		s.eventuallyParked(t, 2)
		asked := func() (left map[string]string) {
			left, err := s.lot.Asked(t.Context())
			require.NoError(t, err)
			return left
		}
		require.Eventually(t, func() bool { return len(asked()) == 1 }, patience, time.Millisecond)
		require.Equal(t, "consumer: permanent: closed today", asked()[ids[claimID(1)]])
		s.stop()
		require.Equal(t, 2, books.triesOf(claimID(1)), "parked, and replayed once")
		require.Equal(t, 1, books.triesOf(claimID(2)), "no one asked for it")
	})
}

// A handler has as long for a replay as for any other attempt.
func TestService_AReplayHasTheTimeOfAnAttempt(t *testing.T) {
	t.Parallel()
	left := make(chan time.Duration, 2)
	s := startService(t, embedded(t), func(c *consumer.Config) {
		c.Timeout = time.Hour
		c.Handle = func(ctx context.Context, _ event.Event, _ []byte) error {
			until, _ := ctx.Deadline()
			left <- time.Until(until)
			return consumer.Permanent(errors.New("closed today"))
		}
	})
	s.claim(t, 0, 1)
	require.Greater(t, <-left, 50*time.Minute)
	require.NoError(t, s.lot.AskReplay(t.Context(), s.eventuallyParked(t, 1)[0].ID))
	require.Greater(t, <-left, 50*time.Minute)
}

// A handler that ignores the end of its context delays a stop by no more
// than CloseTimeout, in a replay, too.
func TestService_AStopDoesNotWaitForAReplayThatHangs(t *testing.T) {
	t.Parallel()
	calls := make(chan struct{}, 2)
	release := make(chan struct{})
	s := startService(t, embedded(t), func(c *consumer.Config) {
		c.CloseTimeout = 10 * time.Millisecond
		c.Handle = func(context.Context, event.Event, []byte) error {
			calls <- struct{}{}
			if len(calls) == 2 {
				<-release
			}
			return consumer.Permanent(errors.New("closed today"))
		}
	})
	t.Cleanup(func() { close(release) })
	s.claim(t, 0, 1)
	require.NoError(t, s.lot.AskReplay(t.Context(), s.eventuallyParked(t, 1)[0].ID))
	require.Eventually(t, func() bool { return len(calls) == 2 }, patience, time.Millisecond)
	s.stop()
}

func TestConfigs_NameTheFieldThatTheyRefuse(t *testing.T) {
	t.Parallel()
	good := consumer.Config{Config: quick(embedded(t), "ledger", prometheus.NewRegistry()), Handle: (&ledger{}).handle}
	for field, spoil := range map[string]func(*consumer.Config){
		"Partitions": func(c *consumer.Config) { c.Partitions = 257 }, "Handle": func(c *consumer.Config) { c.Handle = nil },
		"Attempts": func(c *consumer.Config) { c.Attempts = -1 }, "Timeout": func(c *consumer.Config) { c.Timeout = 1 },
		"ParkedMax": func(c *consumer.Config) { c.ParkedMax = -1 },
	} {
		bad := good
		spoil(&bad)
		_, err := consumer.New(bad)
		require.ErrorIs(t, err, consumer.ErrConfig)
		require.ErrorContains(t, err, field)
	}
	_, err := consumer.NewApplier(consumer.ApplierConfig{Client: good.Client, Name: "one", Logger: quiet()})
	require.ErrorIs(t, err, consumer.ErrConfig)
	require.ErrorContains(t, err, "Log")
	for range 2 { // two groups in one process share the metrics
		_, err := consumer.New(good)
		require.NoError(t, err)
	}
}

// An event is delivered once MySQL has applied it. The signal for an
// entry that Redis has lost since proves nothing.
func TestService_HandsOutWhatMySQLHas(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	scripts, err := lua.New(rdb, lua.Options{Partitions: 2})
	require.NoError(t, err)
	books := &ledger{}
	s := startService(t, rdb, func(cfg *consumer.Config) {
		cfg.Handle = books.handle
		cfg.ReadAhead = false
	})
	for n := range 3 {
		s.claim(t, 0, n)
	}
	entries, err := rdb.XRange(t.Context(), lua.StreamKey(0), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 3)
	isApplied := consumer.IsApplied(rdb)
	for _, told := range []struct {
		entry int
		event string
		is    bool
	}{
		{1, lua.EventIDOf(&entries[1]), false},
		{2, "an event that redis has lost", false},
		{2, lua.EventIDOf(&entries[2]), true},
	} {
		require.False(t, isApplied(t.Context(), lua.StreamKey(0), entries[2].ID))
		require.Zero(t, books.count())
		require.NoError(t, scripts.Signal(t.Context(), map[int]event.Offset{0: {EntryID: entries[told.entry].ID, EventID: told.event}}))
		require.Equal(t, told.is, isApplied(t.Context(), lua.StreamKey(0), entries[2].ID))
	}
	require.Eventually(t, func() bool { return books.count() == 3 }, patience, time.Millisecond)
}

// The waits between attempts grow, other events continue, and a stop
// does not wait for the next attempt.
func TestService_WaitsLongerAndLongerAndAStopDoesNotWait(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	attempts := make(chan time.Time, 100)
	s := startService(t, rdb, func(c *consumer.Config) {
		c.Backoff = consumer.Backoff{Initial: 40 * time.Millisecond, Max: time.Hour}
		c.CloseTimeout = patience
		c.Handle = func(_ context.Context, e event.Event, _ []byte) error {
			if e.ID != claimID(0) {
				return nil
			}
			attempts <- time.Now()
			return errAway
		}
	})
	for n := range 10 {
		s.claim(t, 0, n)
	}
	var at []time.Time
	for range 6 {
		at = append(at, <-attempts)
	}
	require.Greater(t, at[5].Sub(at[4]), at[1].Sub(at[0]))
	require.Greater(t, at[5].Sub(at[4]), 300*time.Millisecond, "the fifth wait is 640 ms, give or take half")
	s.eventuallyPending(t, 1)
	begun := time.Now()
	s.stop()
	require.Less(t, time.Since(begun), 5*time.Second)
	require.EqualValues(t, 1, s.pending(t, "ledger"))
}

func TestConsumer_UnreadableEntriesAreParkedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		books := &ledger{}
		s := startService(t, rdb, func(c *consumer.Config) { c.Handle = books.handle })
		s.claim(t, 0, 0)
		first := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: unreadable[0]}).Val()
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: unreadable[1]}).Err())
		s.claim(t, 0, 1)
		var parked []redis.XMessage
		require.Eventually(t, func() bool {
			parked, _ = rdb.XRange(context.Background(), lua.ParkedKey(0, "ledger"), "-", "+").Result()
			return len(parked) == 2 && books.count() == 2 && s.pending(t, "ledger") == 0
		}, patience, time.Millisecond)
		one := parked[slices.IndexFunc(parked, func(m redis.XMessage) bool { return m.Values["_dibs_id"] == first })].Values
		require.Contains(t, one["_dibs_reason"], "uuid key is missing")
		require.Equal(t, map[string]any{
			"_dibs_id": first, "_dibs_group": "ledger", "_dibs_reason": one["_dibs_reason"], "_dibs_tries": "0", "_dibs_at": one["_dibs_at"],
			"junk": "a\x00b", "payload": "{",
		}, one)
	})
}

func TestCheckPartitions_RefusesToLeaveAStreamUnread(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		require.NoError(t, consumer.CheckPartitions(t.Context(), rdb, 1))
		require.NoError(t, ensureGroups(t.Context(), rdb, 3, "finance"))
		require.NoError(t, consumer.CheckPartitions(t.Context(), rdb, 1), "no event was ever in them")
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(2), Values: []any{"payload", "1"}}).Err())
		require.NoError(t, consumer.CheckPartitions(t.Context(), rdb, 3))
		err := consumer.CheckPartitions(t.Context(), rdb, 2)
		require.ErrorIs(t, err, consumer.ErrConfig)
		require.ErrorContains(t, err, "Partitions is 2, but there are events in dibs:{p2}:claims")
	})
}
