package lab_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/proof/lab"
)

// small is a run of one second per strategy.
func small() lab.Workload {
	w := lab.DefaultWorkload()
	w.Users = testenv.Pick(60, 600)
	w.Units = int64(testenv.Pick(30, 300))
	w.Connections = 16
	w.Rounds = testenv.Pick(1, 3)
	w.Duration = time.Duration(testenv.Pick(500, 2000)) * time.Millisecond
	w.Patience = 10 * time.Second
	return w
}

func quiet(int, int, string) {}

// Every strategy in real processes: a sound one must sell each
// unit once and exceed no limit, and a killed claimer must leave
// what the strategy's flaw says.
func TestLadder(t *testing.T) {
	t.Parallel()
	redis, db := testenv.Redis(t), testenv.Database(t)
	var mu sync.Mutex
	var told []string
	report, err := lab.Run(t.Context(), lab.Options{
		Workload: small(), RedisURL: redis.URL(), MySQLDSN: db.DSN, Self: self,
		Progress: func(done, total int, what string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf("%d/%d %s", done, total, what))
		},
	})
	require.NoError(t, err)
	t.Log("\n" + report.Table())
	entries := lab.Strategies()
	require.Len(t, report.Results, len(entries))
	require.Len(t, told, small().Rounds*len(entries)+1)
	require.Equal(t, fmt.Sprintf("0/%d read-then-write", small().Rounds*len(entries)), told[0])
	var rate float64 // a slow strategy may measure no claim on a busy machine
	for i, res := range report.Results {
		requireSane(t, entries[i], res)
		rate += res.ClaimsPerSecond
	}
	require.Positive(t, rate)
	requireLocks(t, report)
	require.Equal(t, 3, strings.Count(report.Markdown(), "target"))
	requireClean(t, redis, db)
}

func requireSane(t *testing.T, entry lab.Entry, res lab.Result) {
	t.Helper()
	require.Equal(t, entry.Name, res.Name)
	require.LessOrEqual(t, res.P50Ms, res.P99Ms, res.Name)
	for _, round := range res.Rounds {
		require.Zero(t, round.Failed, "%s: %s", res.Name, round.Failure)
		require.Positive(t, round.Sold, res.Name)
	}
	if entry.Sound {
		require.Zero(t, res.Oversold, res.Name)
		require.Zero(t, res.Undersold, res.Name)
		require.Zero(t, res.OverLimitUsers, res.Name)
	}
}

func requireLocks(t *testing.T, report lab.Report) {
	t.Helper()
	left := make(map[string]string)
	for _, res := range report.Results {
		if res.Lock != "0" {
			left[res.Name] = res.Lock
		}
	}
	ends := "1, for 30 s"
	require.Equal(t, map[string]string{
		"setnx": "1, for ever", "setnx-defer": "1, for ever", "setnx-expire": "1, for ever",
		"set-nx-px": ends, "owner-token": ends, "watchdog": ends, "lock-per-coupon": ends,
	}, left)
}

// requireClean checks that a run left nothing behind.
func requireClean(t *testing.T, redis *testenv.RedisServer, db *testenv.SQLServerDB) {
	t.Helper()
	keys, err := redis.Client().Keys(t.Context(), "dibs:*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
	pool, err := sql.Open("mysql", db.DSN)
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close()) }()
	var n int
	require.NoError(t, pool.QueryRowContext(t.Context(),
		"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&n))
	require.Zero(t, n, "tables in the database that the lab was given")
}

func TestRunRefusesARedisWithADibsInIt(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"dibs:{p0}:claims", "dibs:info"} {
		redis, db := testenv.Redis(t), testenv.Database(t)
		require.NoError(t, redis.Client().Set(t.Context(), key, "x", 0).Err())
		_, err := lab.Run(t.Context(), lab.Options{Workload: small(), RedisURL: redis.URL(), MySQLDSN: db.DSN, Self: self, Progress: quiet})
		require.ErrorIs(t, err, lab.ErrInUse)
		require.Equal(t, "x", redis.Client().Get(t.Context(), key).Val(), "and leaves it alone")
	}
}

func TestRunThatIsInterruptedCleansUp(t *testing.T) {
	t.Parallel()
	redis, db := testenv.Redis(t), testenv.Database(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := small()
	w.Strategies, w.Duration = []string{"set-nx-px", "for-update"}, time.Minute
	time.AfterFunc(time.Second, cancel)
	start := time.Now()
	_, err := lab.Run(ctx, lab.Options{Workload: w, RedisURL: redis.URL(), MySQLDSN: db.DSN, Self: self, Progress: quiet})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(start), w.Duration/2)
	requireClean(t, redis, db)
}

func TestRunStartsTheServersThatItIsNotGiven(t *testing.T) {
	t.Parallel()
	report, err := lab.Run(t.Context(), lab.Options{Workload: brief("lua-update"), Self: self, Progress: quiet})
	require.NoError(t, err)
	require.Len(t, report.Servers, 2)
}

func TestMissingServerIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := lab.Run(t.Context(), lab.Options{Workload: brief("watch"), Self: self, Progress: quiet})
	if err != nil && !strings.Contains(err.Error(), "redis-server") {
		require.ErrorContains(t, err, "mariadbd")
	}
	require.ErrorIs(t, err, lab.ErrNoServer)
	require.ErrorContains(t, err, "install")
}
