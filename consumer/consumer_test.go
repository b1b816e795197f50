package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer"
	"dibs/lua"
	"dibs/models"
)

// books is a Sink for tests: it commits at once, unless told to wait or to fail.
type books struct {
	wait    chan struct{} // nil: at once
	mu      sync.Mutex
	fail    int // so many events yet
	entries map[string]models.Event
	started int
}

func newBooks() *books { return &books{entries: map[string]models.Event{}} }

func (b *books) Submit(ctx context.Context, batch []models.RawEvent, settled func(i int, err error)) {
	for i := range batch {
		settled(i, b.book(ctx, batch[i].Event, batch[i].Payload))
	}
}

func (b *books) book(ctx context.Context, e models.Event, payload []byte) error {
	b.mu.Lock()
	b.started++
	failing := b.fail > 0
	b.fail--
	b.mu.Unlock()
	if failing {
		return errors.New("the books are closed")
	}
	if b.wait != nil {
		select {
		case <-b.wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	again, err := models.DecodeEvent(payload)
	if err != nil || !reflect.DeepEqual(again, e) {
		return fmt.Errorf("payload and event differ: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[e.ID] = e
	return nil
}

func (b *books) counts() (entries, started int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries), b.started
}

// role is a running Consumer over two partitions. Its keys are the real ones, so each needs a Redis of its own.
type role struct {
	rdb    redis.UniversalClient
	reg    *prometheus.Registry
	sink   *books
	cancel context.CancelFunc
	done   chan error

	replicated func(ctx context.Context, stream string) error
}

func startRole(t *testing.T, rdb redis.UniversalClient, sink *books) *role {
	t.Helper()
	return startRoleBehind(t, rdb, sink, nil)
}

func startRoleBehind(
	t *testing.T, rdb redis.UniversalClient, sink *books, replicated func(ctx context.Context, stream string) error,
) *role {
	t.Helper()
	r := &role{rdb: rdb, reg: prometheus.NewRegistry(), sink: sink, replicated: replicated}
	require.NoError(t, ensureGroups(t.Context(), rdb, 2, models.GroupSyncer))
	r.start(t, sink)
	return r
}

func startRoleWith(t *testing.T, rdb redis.UniversalClient, sink consumer.Sink, counts *books) *role {
	t.Helper()
	r := &role{rdb: rdb, reg: prometheus.NewRegistry(), sink: counts}
	require.NoError(t, ensureGroups(t.Context(), rdb, 2, models.GroupSyncer))
	r.start(t, sink)
	return r
}

func (r *role) start(t *testing.T, sink consumer.Sink) {
	t.Helper()
	reading := quick(r.rdb, "", r.reg)
	reading.Replicated = r.replicated
	c, err := consumer.New(consumer.Config{
		Config: reading, Partitions: 2, Sink: sink, Backoff: consumer.Backoff{Initial: 10 * time.Millisecond, Max: 100 * time.Millisecond},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel, r.done = cancel, make(chan error, 1)
	go func() { r.done <- c.Run(ctx) }()
	t.Cleanup(cancel)
}

func (r *role) claim(t *testing.T, partition, n int) {
	t.Helper()
	payload := fmt.Sprintf(benchPayload, n, n, n+1)
	require.NoError(t, r.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(partition), Values: []any{
		"_watermill_message_uuid", fmt.Sprint(n), "metadata", "", "payload", payload}}).Err())
}

func (r *role) eventuallyBooked(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { got, _ := r.sink.counts(); return got == n }, patience, 2*time.Millisecond)
}

func (r *role) pending(t *testing.T, group string) (n int64) {
	t.Helper()
	for p := range 2 {
		pending, err := r.rdb.XPending(context.Background(), lua.StreamKey(p), group).Result()
		require.NoError(t, err)
		n += pending.Count
	}
	return n
}

func TestConsumer_BooksAllPartitionsAndCounts(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		sink := newBooks()
		sink.fail = 3
		r := startRole(t, rdb, sink)
		for i := range 200 {
			r.claim(t, i%2, i)
		}
		for p, payload := range []string{`{"v":1`, `{"v":9,"id":"x","campaign_id":"c"}`} { // both are permanent
			require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(p), Values: []any{
				"_watermill_message_uuid", "bad", "payload", payload}}).Err())
		}
		r.eventuallyBooked(t, 200)
		require.Eventually(t, func() bool { return metric(t, r.reg, "acked_total") == 202 }, patience, time.Millisecond)
		require.Zero(t, r.pending(t, models.GroupSyncer))
		for p := range 2 {
			poisoned, err := rdb.XLen(t.Context(), lua.PoisonKey(p)).Result()
			require.NoError(t, err)
			require.EqualValues(t, 1, poisoned)
		}
		require.EqualValues(t, 202, metric(t, r.reg, "read_total"))
		require.EqualValues(t, 3, metric(t, r.reg, "retried_total"))
		require.EqualValues(t, 2, metric(t, r.reg, "poisoned_total"))
		require.Positive(t, metric(t, r.reg, "handler_execution_time_seconds"), "watermill's own metrics")
		require.Zero(t, metric(t, r.reg, "in_flight"))
		problems, err := testutil.GatherAndLint(r.reg)
		require.NoError(t, err)
		require.Empty(t, problems)
		r.cancel()
		require.NoError(t, <-r.done)
	})
}

// picky refuses one event the first time, and notes who came with whom.
type picky struct {
	*books

	refuse  string
	batches map[string][]int // sizes of the batches that an event came in
}

func (p *picky) Submit(ctx context.Context, batch []models.RawEvent, settled func(i int, err error)) {
	for i := range batch {
		id := batch[i].ID
		p.mu.Lock()
		p.batches[id] = append(p.batches[id], len(batch))
		again := len(p.batches[id]) > 1
		p.mu.Unlock()
		if id == p.refuse && !again {
			settled(i, errors.New("not this one, not yet"))
		} else {
			settled(i, p.book(ctx, batch[i].Event, batch[i].Payload))
		}
	}
}

func TestConsumer_OneRefusedEventOfABatchComesAgainAlone(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		event, err := models.DecodeEvent(fmt.Appendf(nil, benchPayload, 7, 7, 8))
		require.NoError(t, err)
		sink := &picky{books: newBooks(), refuse: event.ID, batches: map[string][]int{}}
		r := &role{rdb: rdb, reg: prometheus.NewRegistry(), sink: sink.books}
		for i := range 50 {
			r.claim(t, 0, i) // before the consumer starts: one read brings them all
		}
		r.start(t, sink)
		r.eventuallyBooked(t, 50)
		require.Eventually(t, func() bool { return r.pending(t, models.GroupSyncer) == 0 }, patience, time.Millisecond)
		r.cancel()
		require.NoError(t, <-r.done)
		for id, sizes := range sink.batches {
			want := []int{50}
			if id == event.ID {
				want = []int{50, 1}
			}
			require.Equal(t, want, sizes)
		}
		require.EqualValues(t, 1, metric(t, r.reg, "retried_total"))
		require.EqualValues(t, 50, metric(t, r.reg, "acked_total"))
	})
}

func TestConsumer_StopLetsSubmitsFinishAndReadsNoMore(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		sink := newBooks()
		sink.wait = make(chan struct{})
		r := startRole(t, rdb, sink)
		r.claim(t, 0, 0)
		r.claim(t, 1, 1)
		require.Eventually(t, func() bool { _, started := sink.counts(); return started == 2 }, patience, time.Millisecond)
		require.EqualValues(t, 2, metric(t, r.reg, "in_flight"))
		r.cancel()
		select {
		case err := <-r.done:
			require.FailNow(t, "stopped with Submits in flight", "%v", err)
		case <-time.After(100 * time.Millisecond):
		}
		r.claim(t, 0, 2)
		close(sink.wait)
		require.NoError(t, <-r.done)
		require.Zero(t, r.pending(t, models.GroupSyncer), "what was committed is acked")
		entries, started := sink.counts()
		require.Equal(t, []int{2, 2}, []int{entries, started}, "what came after the stop was not read")
	})
}

func TestConsumer_StopGivesUpOnASinkThatHangs(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		sink := newBooks()
		sink.wait = make(chan struct{})
		r := startRole(t, rdb, sink)
		r.claim(t, 0, 0)
		require.Eventually(t, func() bool { _, started := sink.counts(); return started == 1 }, patience, time.Millisecond)
		r.cancel()
		require.NoError(t, <-r.done, "within the CloseTimeout: the context of the Submit ends")
		require.EqualValues(t, 1, r.pending(t, models.GroupSyncer))
	})
}

func TestConsumer_RefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	rdb := embedded(t)
	good := consumer.Config{Config: quick(rdb, "", prometheus.NewRegistry()), Sink: newBooks()}
	for field, spoil := range map[string]func(*consumer.Config){
		"Client":     func(c *consumer.Config) { c.Client = nil },
		"Partitions": func(c *consumer.Config) { c.Partitions = 1000 },
		"Name":       func(c *consumer.Config) { c.Name = "" },
		"Sink":       func(c *consumer.Config) { c.Sink = nil },
		"Logger":     func(c *consumer.Config) { c.Logger = nil },
		"Registerer": func(c *consumer.Config) { c.Registerer = nil },
		"Window":     func(c *consumer.Config) { c.Window = -1 },
	} {
		cfg := good
		spoil(&cfg)
		_, err := consumer.New(cfg)
		require.ErrorIs(t, err, consumer.ErrConfig)
		require.ErrorContains(t, err, " "+field)
	}
	for range 2 { // in one process: they share the metrics
		_, err := consumer.New(good)
		require.NoError(t, err)
	}
	good.Registerer = prometheus.NewRegistry()
	good.Registerer.MustRegister(prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dibs_consumer_read_total", Help: "Entries taken from the stream, reclaimed ones included."}, []string{"group", "partition"}))
	_, err := consumer.New(good)
	require.ErrorContains(t, err, "registering metrics", "someone else has the name")
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
