package finance_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"dibs/consumer"
	"dibs/consumer/redisbatch"
	"dibs/finance"
	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

var patience = time.Duration(testenv.Pick(1, 10)) * time.Minute

// startService runs books like `dibs finance`, over two partitions, fast
// enough for tests. between wraps their handler.
func startService(
	t *testing.T, rdb redis.UniversalClient, db *gorm.DB, name string, between func(models.Event, consumer.HandleFunc) error,
) {
	t.Helper()
	books := openBooks(t, finance.Config{DB: db, BatchSize: 200, Interval: 2 * time.Millisecond})
	service, err := consumer.New(consumer.Config{
		Config: redisbatch.Config{
			Client: rdb, Group: finance.Group, Name: name, Logger: syncertest.Quiet(), Registerer: prometheus.NewRegistry(),
			Window: 2000, CloseTimeout: 2 * time.Second,
		},
		Partitions: 2, ReadAhead: true,
		Handle: func(ctx context.Context, e models.Event, payload []byte) error {
			return between(e, func(_ context.Context, e models.Event, _ []byte) error { return books.Handle(ctx, e, payload) })
		},
		Backoff: consumer.Backoff{Initial: 5 * time.Millisecond, Max: 500 * time.Millisecond},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
}

func straight(e models.Event, handle consumer.HandleFunc) error {
	return handle(context.Background(), e, nil)
}

func credited(db *gorm.DB) int {
	var n int64
	if db.Model(&finance.Entry{}).Count(&n).Error != nil {
		return -1
	}
	return int(n)
}

func drained(t testing.TB, rdb redis.UniversalClient, stuck int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		var left int64
		for p := range 2 {
			groups, err := rdb.XInfoGroups(context.Background(), lua.StreamKey(p)).Result()
			if err != nil || len(groups) != 1 {
				return false
			}
			newest, err := rdb.XRevRangeN(context.Background(), lua.StreamKey(p), "+", "-", 1).Result()
			if err != nil || len(newest) == 1 && newest[0].ID != groups[0].LastDeliveredID {
				return false
			}
			left += groups[0].Pending
		}
		return left == stuck
	}, patience, 10*time.Millisecond)
}

// The database becomes unreachable and returns, one message in ten fails at
// random, and some can never be credited. All others must be credited once.
// Those are parked, and credited by a replay once their obstacle is removed.
func TestService_DatabaseAwayAndFailuresAtRandom(t *testing.T) {
	t.Parallel()
	server := testenv.SQLServer(t)
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: server.DSN("books")})
	rdb := testenv.Redis(t).Client()
	total, away := testenv.Pick(1500, 100_000), time.Duration(testenv.Pick(2, 60))*time.Second
	random := func(e models.Event, handle consumer.HandleFunc) error {
		if rand.IntN(10) == 0 {
			return errors.New("bad luck")
		}
		return handle(context.Background(), e, nil)
	}
	startService(t, rdb, db, "one", random)
	startService(t, rdb, db, "two", random)

	var events, wrong []models.Event
	for n := range total {
		events = append(events, packetClaim(n))
		if n%300 == 7 { // another entry already has the id
			other := packetClaim(n)
			other.UserID = "an impostor"
			entry, _, err := finance.EntryOf(&other)
			require.NoError(t, err)
			entry.CreditedAt = entry.ClaimedAt
			require.NoError(t, db.Create(&entry).Error)
			wrong = append(wrong, events[n])
		}
	}
	third := total / 3
	publish(t, rdb, 0, events[:third]...)
	require.Eventually(t, func() bool { return credited(db) > third/4 }, patience, 5*time.Millisecond)
	server.Kill()
	publish(t, rdb, 1, events[third:2*third]...)
	<-time.After(away)
	server.Start()
	publish(t, rdb, 0, events[2*third:]...)
	lot := consumer.NewParkingLot(rdb, 2, finance.Group)
	var parked []consumer.Parked
	require.Eventually(t, func() bool {
		parked = nil
		for p, err := range lot.All(t.Context()) {
			if err != nil {
				return false
			}
			parked = append(parked, p)
		}
		return len(parked) >= len(wrong)
	}, patience, 20*time.Millisecond)
	drained(t, rdb, 0)
	require.Equal(t, total, credited(db), "the impostors' entries are among them")
	for _, p := range parked {
		require.Contains(t, p.Reason, "another entry has this id")
	}
	require.NotEmpty(t, faults(t, db, events))

	require.NoError(t, db.Where("user_id = ?", "an impostor").Delete(&finance.Entry{}).Error)
	books := openBooks(t, finance.Config{DB: db})
	sum, err := lot.Replay(t.Context(), "", books.Handle)
	require.NoError(t, err)
	require.Empty(t, sum.Left)
	require.GreaterOrEqual(t, sum.Handled, len(wrong), "a message may be parked twice")
	require.Empty(t, faults(t, db, events))
}

// Redis crashes, restarts from its disk, and the group is lost: the whole
// stream is redelivered, and nothing may be credited twice.
func TestService_RedisRestartsAndTheGroupIsLost(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		server := testenv.Redis(t, "appendonly yes", "appendfsync always")
		rdb := server.Client()
		startService(t, rdb, db, "one", straight)
		var events []models.Event
		for n := range 900 {
			events = append(events, packetClaim(n))
		}
		publish(t, rdb, 0, events[:300]...)
		require.Eventually(t, func() bool { return credited(db) > 30 }, patience, 10*time.Millisecond)
		server.Kill()
		server.Start()
		publish(t, rdb, 1, events[300:600]...)
		require.Eventually(t, func() bool { return credited(db) > 450 }, patience, 10*time.Millisecond)
		for p := range 2 {
			require.NoError(t, rdb.XGroupDestroy(t.Context(), lua.StreamKey(p), finance.Group).Err())
		}
		publish(t, rdb, 0, events[600:]...)
		require.Eventually(t, func() bool { return credited(db) == 900 }, patience, 10*time.Millisecond)
		drained(t, rdb, 0)
		require.Empty(t, faults(t, db, events))
	})
}
