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
	"dibs/models"
	"dibs/models/event"
)

type memoryLog struct {
	mu        sync.Mutex
	offsets   map[int]event.Offset
	turns     map[int]int64
	positions map[int][]event.Offset // newest first
	// ids in order of arrival, without those of generations
	events    []string
	bad       int
	recovered int // times that the partition was rewound
	lostAt    time.Time
	settled   time.Duration // from the loss until it was rewound
	refuse    bool
}

func (l *memoryLog) Begin(_ context.Context, partition int) (turn int64, at event.Offset, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns == nil {
		l.turns = map[int]int64{}
		l.positions = map[int][]event.Offset{}
	}
	if l.offsets == nil {
		l.offsets = map[int]event.Offset{}
	}
	l.turns[partition]++
	at, known := l.offsets[partition]
	if !known {
		at = event.NoOffset()
		l.offsets[partition] = at
	}
	return l.turns[partition], at, nil
}

func (l *memoryLog) Free(ctx context.Context, _ int, _ int64) (int, error) { return 100, ctx.Err() }

func (l *memoryLog) Add(read *event.Read) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse || read.Turn != l.turns[read.Partition] {
		l.refuse = false
		return errors.New("the turn is over")
	}
	for i := range read.Events {
		if read.Events[i].Unreadable != "" {
			l.bad++
			continue
		}
		if read.Events[i].Type != event.PartitionGeneration {
			l.events = append(l.events, read.Events[i].ID)
		}
	}
	l.positions[read.Partition] = append([]event.Offset{read.Upto}, l.positions[read.Partition]...)
	l.offsets[read.Partition] = read.Upto
	return nil
}

func (l *memoryLog) Positions(_ context.Context, partition int) ([]event.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.positions[partition], nil
}

func (l *memoryLog) Move(_ context.Context, partition int, from, to event.Offset) (moved bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.offsets[partition] != from {
		return false, nil
	}
	l.offsets[partition] = to
	if to.EntryID != from.EntryID {
		l.recovered++
		l.settled = time.Since(l.lostAt)
	}
	if to.Generation != from.Generation {
		l.lostAt = time.Now()
	}
	return true, nil
}

func (l *memoryLog) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.events...)
}

func (l *memoryLog) offset(partition int) event.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offsets[partition]
}

// settle is the time for processes to report what they saw.
const settle = 50 * time.Millisecond

type applierRole struct {
	*role

	log  *memoryLog
	stop func()
}

func startApplier(t *testing.T, rdb redis.UniversalClient, log *memoryLog, name string) *applierRole {
	t.Helper()
	a := &applierRole{role: &role{rdb: rdb, reg: prometheus.NewRegistry()}, log: log}
	cfg := consumer.ApplierConfig{
		Client: rdb, Name: name, Log: log, Partitions: 2, BlockTime: 20 * time.Millisecond, GatherPause: time.Millisecond, Settle: settle,
		Logger: quiet(), Registerer: a.reg,
	}
	running, err := consumer.NewApplier(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- running.Run(ctx) }()
	a.stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-done) })
	t.Cleanup(a.stop)
	return a
}

// claims makes claims of partition 0, numbered from from, and
// waits until the log has all so far.
func (a *applierRole) claims(t *testing.T, from, n int) {
	t.Helper()
	for i := range n {
		a.claim(t, 0, from+i)
	}
	a.eventually(t, from+n)
}

func (a *applierRole) eventually(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(a.log.ids()) >= n }, patience, 2*time.Millisecond)
	require.Len(t, a.log.ids(), n)
}

func TestApplier_ReadsOnFromTheOffset(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		log := &memoryLog{refuse: true} // the first read comes again
		a := startApplier(t, rdb, log, "one")
		for n := range 500 {
			a.claim(t, n%2, n)
		}
		a.eventually(t, 500)
		a.stop()
		for n := 500; n < 750; n++ {
			a.claim(t, 0, n)
		}
		read, err := rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{ // and dies
			Group: models.GroupSyncer, Consumer: "three", Streams: []string{lua.StreamKey(0), ">"}, NoAck: true, Block: -1,
		}).Result()
		require.NoError(t, err)
		require.Len(t, read[0].Messages, 250)
		a = startApplier(t, rdb, log, "two")
		a.eventually(t, 750)
		a.stop()
		require.Zero(t, a.pending(t, models.GroupSyncer))
		require.EqualValues(t, 500, log.offset(0).Read)
		require.Zero(t, log.recovered)
		require.Zero(t, generationOf(t, rdb), "nothing was lost")
		last := map[string]int{}
		for i, id := range log.ids() {
			last[id] = i
		}
		require.Len(t, last, 750, "each once")
		for n := 2; n < 500; n++ {
			require.Less(t, last[claimID(n-2)], last[claimID(n)], "in the order of its stream")
		}
	})
}

func TestApplier_XInfoShowsPositionAndLag(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	log := &memoryLog{}
	a := startApplier(t, rdb, log, "one")
	a.claims(t, 0, 300)
	require.Eventually(t, func() bool {
		groups, err := rdb.XInfoGroups(t.Context(), lua.StreamKey(0)).Result()
		require.NoError(t, err)
		return len(groups) == 1 && groups[0].Lag == 0 && groups[0].EntriesRead == 300 && groups[0].LastDeliveredID == log.offset(0).EntryID
	}, patience, 5*time.Millisecond)
	a.stop()
	for n := 300; n < 340; n++ {
		a.claim(t, 0, n)
	}
	require.NoError(t, rdb.XTrimMinID(t.Context(), lua.StreamKey(0), log.offset(0).EntryID).Err())
	require.EqualValues(t, 40, rdb.XInfoGroups(t.Context(), lua.StreamKey(0)).Val()[0].Lag, "after a trim, too")
}

// Redis lost the newest entries and has others since, some under the
// same ids. The partition gets a new generation, and the stream is read
// again from the newest position that still exists. Without the event's
// id the reader would continue after an entry that it never read.
func TestApplier_ReadsAgainWhatRedisGotInPlaceOfWhatItLost(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		log := &memoryLog{}
		a := startApplier(t, rdb, log, "one")
		for n := range 3 {
			a.claims(t, n, 1)
		}
		a.stop()
		last := log.offset(0).EntryID
		require.NoError(t, rdb.XDel(t.Context(), lua.StreamKey(0), last).Err())
		replaced := rebuild(t, rdb, last)
		a = startApplier(t, rdb, log, "one")
		a.recovers(t, 1)
		a.claim(t, 0, 4)
		a.eventually(t, 5)
		require.Equal(t, 1, log.recovered)
		require.GreaterOrEqual(t, log.settled, settle)
		require.Equal(t, []string{claimID(0), claimID(1), claimID(2), replaced, claimID(4)}, log.ids(), "it has the id of the entry that was applied last")
	})
}

// A reader died, or MySQL was restored, after a partition's generation was
// raised. The next reader takes a higher one than both servers have.
func TestApplier_BeginsAgainWhereARecoveryEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inMySQL, inRedis, next int64
	}{"in MySQL alone": {3, 0, 4}, "in a Redis that is ahead": {3, 7, 8}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
				if c.inRedis > 0 {
					require.NoError(t, rdb.HSet(t.Context(), lua.SignalsKey(0), "generation", c.inRedis).Err())
				}
				at := event.NoOffset()
				at.State, at.Generation = event.PartitionRecovering, c.inMySQL
				log := &memoryLog{offsets: map[int]event.Offset{0: at}}
				a := startApplier(t, rdb, log, "one")
				a.claim(t, 0, 1)
				a.recovers(t, c.next)
				a.eventually(t, 1)
			})
		})
	}
}

func (a *applierRole) recovers(t *testing.T, generation int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		at := a.log.offset(0)
		return at.State == event.PartitionOK && at.Generation == generation
	}, patience, 2*time.Millisecond)
	require.Equal(t, generation, generationOf(t, a.rdb))
}

func generationOf(t *testing.T, rdb redis.UniversalClient) int64 {
	t.Helper()
	generation, err := rdb.HGet(t.Context(), lua.SignalsKey(0), "generation").Int64()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
	return generation
}

// rebuild writes the stream of partition 0 again, as after a loss of
// its end, with another entry at an id.
func rebuild(t *testing.T, rdb redis.UniversalClient, id string) (event string) {
	t.Helper()
	key := lua.StreamKey(0)
	entries, err := rdb.XRange(t.Context(), key, "-", "+").Result()
	require.NoError(t, err)
	require.NoError(t, rdb.Del(t.Context(), key).Err())
	event = claimID(3)
	entries = append(entries, redis.XMessage{ID: id, Values: map[string]any{
		"_watermill_message_uuid": event, "metadata": "", "payload": fmt.Sprintf(benchPayload, 3, 3, 4),
	}})
	for _, e := range entries {
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: key, ID: e.ID, Values: e.Values}).Err())
	}
	return event
}

// A Redis that lost everything has no group and no stream, with or
// without a running reader. Its new entries are unknown to MySQL, even
// if the mark of trimming remained.
func TestApplier_ReadsAllOfAStreamThatBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, isStopped := range map[string]bool{"running": false, "stopped, the mark left": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
				log := &memoryLog{}
				a := startApplier(t, rdb, log, "one")
				a.claims(t, 0, 10)
				if isStopped {
					a.stop()
					entries := rdb.XRange(t.Context(), lua.StreamKey(0), "-", "+").Val()
					require.NoError(t, rdb.Set(t.Context(), lua.TrimmedKey(0), entries[4].ID, 0).Err())
				}
				require.NoError(t, rdb.Del(t.Context(), lua.StreamKey(0)).Err())
				if isStopped {
					a = startApplier(t, rdb, log, "one")
				}
				a.claims(t, 10, 10)
				a.recovers(t, 1)
				require.Empty(t, rdb.Get(t.Context(), lua.TrimmedKey(0)).Val())
			})
		})
	}
}

func TestApplier_GoesPastEntriesOfStrangers(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		log := &memoryLog{}
		a := startApplier(t, rdb, log, "one")
		strange := slices.Clone(unreadable)
		for _, id := range []string{strings.Repeat("x", 1000), "\xff\xfe", ""} {
			strange = append(strange, []any{"_watermill_message_uuid", id, "metadata", "", "payload", "{"})
		}
		for _, values := range strange {
			require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: values}).Err())
		}
		last := rdb.XRevRangeN(t.Context(), lua.StreamKey(0), "+", "-", 1).Val()[0].ID
		require.Eventually(t, func() bool { return log.offset(0).EntryID == last }, patience, time.Millisecond)
		a.stop()
		require.Equal(t, len(strange), log.bad)
		at := log.offset(0)
		require.LessOrEqual(t, len(at.EventID), models.CampaignIDLength)
		a = startApplier(t, rdb, log, "one") // it knows its offset
		a.claim(t, 0, 1)
		require.Eventually(t, func() bool { return slices.Contains(log.ids(), claimID(1)) }, patience, time.Millisecond)
		require.Zero(t, log.recovered)
	})
}

// If MySQL was restored to before the start of the stream, Redis has
// not lost data. The reader waits until MySQL is rolled forward.
func TestApplier_WaitsWhereEntriesWereTrimmedThatMySQLLacks(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		log := &memoryLog{}
		a := startApplier(t, rdb, log, "one")
		a.claims(t, 0, 10)
		a.stop()
		applied := log.offset(0)
		require.NoError(t, rdb.Set(t.Context(), lua.TrimmedKey(0), applied.EntryID, 0).Err())
		require.NoError(t, rdb.XTrimMaxLen(t.Context(), lua.StreamKey(0), 0).Err())
		for _, restored := range []event.Offset{applied, {EntryID: event.NoEntry}} {
			log := &memoryLog{offsets: map[int]event.Offset{0: restored}}
			a := startApplier(t, rdb, log, "one")
			a.claim(t, 0, 11)
			require.Eventually(t, func() bool { return log.offset(0).State == event.PartitionGap }, patience, time.Millisecond)
			a.stop()
			require.Empty(t, log.ids())
			require.Zero(t, log.recovered)
			require.Zero(t, generationOf(t, rdb))
		}
		first := rdb.XRangeN(t.Context(), lua.StreamKey(0), "-", "+", 1).Val()[0]
		forward := event.Offset{EntryID: first.ID, EventID: lua.EventIDOf(&first), Read: 11, State: event.PartitionGap}
		log = &memoryLog{offsets: map[int]event.Offset{0: forward}}
		a = startApplier(t, rdb, log, "one")
		a.claim(t, 0, 12)
		a.recovers(t, 0)
		require.Eventually(t, func() bool { return slices.Contains(log.ids(), claimID(12)) }, patience, time.Millisecond)
	})
}
