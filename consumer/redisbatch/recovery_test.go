package redisbatch_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

// abandon reads n entries under the name of a consumer that then stops.
func (f *fixture) abandon(name string, n int) {
	f.t.Helper()
	ctx := context.Background()
	err := f.rdb.XGroupCreateMkStream(ctx, f.stream, "readers", "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		require.NoError(f.t, err)
	}
	got, err := f.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "readers", Consumer: name, Streams: []string{f.stream, ">"}, Count: int64(n), Block: -1,
	}).Result()
	require.NoError(f.t, err)
	require.Len(f.t, got[0].Messages, n)
}

func TestSubscriber_TakesOverFromTheDeadAlone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		f.publish(0, 50)
		f.abandon("dead", 50)
		cfg := f.config("slow")
		cfg.CloseTimeout = time.Millisecond
		cfg.ReclaimEvery = time.Hour // or it might save its own
		mine := f.subscribe(cfg)
		f.publish(50, 1)
		held := next(t, mine)
		cfg.Name, cfg.ReclaimEvery = "b", 20*time.Millisecond
		theirs := f.subscribe(cfg)
		require.ElementsMatch(t, names(0, 50), take(t, theirs, 50))
		none(t, theirs, 3*cfg.MinIdle)
		none(t, mine, 20*time.Millisecond)
		held.Ack()
		f.eventuallyNonePending()
	})
}

func TestSubscriber_ReportsWhatWasTrimmedBeforeItWasHandled(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"a", "dead"} { // its own pending entries, and those it reclaims
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, testenv.SharedRedis(t).Client())
			f.publish(0, 10)
			f.abandon(owner, 8)
			require.NoError(t, f.rdb.XTrimMaxLen(t.Context(), f.stream, 5).Err())
			cfg := f.config("a")
			cfg.Registerer = f.reg
			messages := f.subscribe(cfg)
			got := take(t, messages, 5)
			require.ElementsMatch(t, names(5, 5), got)
			require.Eventually(t, func() bool { return metric(t, f.reg, "lost_total") >= 5 }, patience, time.Millisecond)
			f.eventuallyNonePending()
			none(t, messages, 100*time.Millisecond)
			require.EqualValues(t, 5, metric(t, f.reg, "lost_total"), "reported once")
			require.Zero(t, metric(t, f.reg, "in_flight"), "they leave no hole in the window")

			f.publish(10, 1)
			held := next(t, messages)
			require.NoError(t, f.rdb.XTrimMaxLen(t.Context(), f.stream, 0).Err())
			none(t, messages, 2*cfg.MinIdle)
			held.Ack()
			f.eventuallyNonePending()
			require.EqualValues(t, 5, metric(t, f.reg, "lost_total"), "one that is handled is not lost")
		})
	}
}

func TestSubscriber_GoesOnAfterFlushAll(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) { t.Parallel(); flushAll(t, testenv.Redis(t).Client()) })
	t.Run("embedded", func(t *testing.T) { t.Parallel(); flushAll(t, embedded(t)) })
}

func flushAll(t *testing.T, rdb redis.UniversalClient) {
	f := newFixture(t, rdb)
	messages := f.subscribe(f.config("a"))
	f.publish(0, 10)
	held := next(t, messages)
	take(t, messages, 9)
	require.NoError(t, rdb.FlushAll(t.Context()).Err()) //nolint:forbidigo // a Redis of its own
	f.publish(10, 10)                                   // before the group is there again
	require.Equal(t, names(10, 10), take(t, messages, 10))
	held.Ack()
	f.eventuallyNonePending()
	f.publish(20, 10)
	require.Equal(t, names(20, 10), take(t, messages, 10))
}

// A lost stream may reuse ids. The new entries are delivered despite
// old ones in flight, whose acks don't affect them.
func TestSubscriber_DoesNotMistakeNewEntriesForOldOnes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		add := func(name string) {
			require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: f.stream, ID: "7-7", Values: []any{
				"_watermill_message_uuid", name, "payload", name}}).Err())
		}
		cfg := f.config("a")
		cfg.MinIdle = time.Hour
		messages := f.subscribe(cfg)
		add("old")
		old := next(t, messages)
		require.NoError(t, rdb.Del(t.Context(), f.stream).Err())
		add("new")
		fresh := next(t, messages)
		require.Equal(t, "new", nameOf(fresh))
		old.Ack()
		require.Never(t, func() bool { return f.pending() != 1 }, 100*time.Millisecond, 5*time.Millisecond)
		fresh.Ack()
		f.eventuallyNonePending()
	})
}

// Redis is killed and restarted from its append-only file with a
// thousand messages in flight.
func TestSubscriber_SurvivesARestartOfRedis(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, "appendonly yes", "appendfsync always")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: 3})
	t.Cleanup(func() { _ = rdb.Close() })
	f := newFixture(t, rdb)
	f.publish(0, 1000)
	messages := f.subscribe(f.config("a"))
	seen := map[string]bool{}
	for i := 0; len(seen) < 1000; i++ {
		msg := next(t, messages)
		if i%50 == 7 {
			msg.Nack()
		} else {
			seen[nameOf(msg)] = true
			msg.Ack()
		}
		if i == 400 || i == 700 {
			server.Kill()
			server.Start()
		}
	}
	f.eventuallyNonePending()
	f.publish(1000, 10)
	require.Subset(t, names(0, 1010), take(t, messages, 10))
}

// A name with an entry stays, as the entry would be removed with it.
func TestNames_LeftBehindGoUnlessTheyHaveEntries(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	stream := lua.StreamKey(0)
	require.NoError(t, rdb.XGroupCreateMkStream(t.Context(), stream, "audit", "0").Err())
	require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []string{"payload", "x"}}).Err())
	for _, name := range []string{"busy", "idle", "me"} {
		require.NoError(t, rdb.XGroupCreateConsumer(t.Context(), stream, "audit", name).Err())
	}
	require.NoError(t, rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "audit", Consumer: "busy", Streams: []string{stream, ">"}}).Err())
	left := func() (names []string) {
		all, err := rdb.XInfoConsumers(t.Context(), stream, "audit").Result()
		require.NoError(t, err)
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names
	}
	redisbatch.DropNames(t.Context(), rdb, stream, "audit", "me", time.Hour)
	require.Len(t, left(), 3, "they were there a moment ago")
	require.Eventually(t, func() bool {
		redisbatch.DropNames(t.Context(), rdb, stream, "audit", "me", time.Millisecond)
		return len(left()) == 2
	}, patience, 5*time.Millisecond)
	require.ElementsMatch(t, []string{"busy", "me"}, left())
}

// Redis loses entries while they wait for MySQL, which then applies others.
// Only what Redis still has is delivered.
func TestSubscriber_ForgetsWhatRedisLostBeforeItWasReady(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.SharedRedis(t).Client())
	var ready atomic.Bool
	ready.Store(true)
	asked := make(chan string, 1)
	cfg := f.config("a")
	cfg.ReadCount = 10
	cfg.Registerer = f.reg
	cfg.IsReady = func(_ context.Context, _, id string) bool {
		select {
		case asked <- id:
		default:
		}
		return ready.Load()
	}
	messages := f.subscribe(cfg)
	f.publish(0, 1)
	require.Equal(t, []string{"0"}, take(t, messages, 1))
	f.eventuallyNonePending()
	before, err := f.rdb.Dump(t.Context(), f.stream).Result()
	require.NoError(t, err)

	ready.Store(false)
	<-asked
	var ids []*redis.StringCmd
	add := func(tx redis.Pipeliner, id, name string) {
		ids = append(ids, tx.XAdd(t.Context(), &redis.XAddArgs{Stream: f.stream, ID: id, Values: []any{
			"_watermill_message_uuid", name, "payload", name}}))
	}
	_, err = f.rdb.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		add(tx, "", "1")
		add(tx, "", "2")
		return nil
	})
	require.NoError(t, err)
	for id := range asked {
		if id == ids[1].Val() {
			break
		}
	}
	_, err = f.rdb.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.RestoreReplace(t.Context(), f.stream, 0, before)
		add(tx, ids[0].Val(), "1")
		add(tx, "", "3")
		return nil
	})
	require.NoError(t, err)
	ready.Store(true)
	require.Equal(t, []string{"1", "3"}, take(t, messages, 2))
	f.eventuallyNonePending()
	require.Zero(t, metric(t, f.reg, "lost_total"))
	require.Zero(t, metric(t, f.reg, "in_flight"))
}
