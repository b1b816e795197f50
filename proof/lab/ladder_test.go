package lab_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/proof/lab"
)

// brief is the shortest possible run of some strategies.
func brief(entries ...string) lab.Workload {
	w := lab.DefaultWorkload()
	w.Strategies = entries
	w.Users = 20
	w.Units = 10
	w.Connections = 4
	w.Rounds = 1
	w.Duration = 50 * time.Millisecond
	w.Patience = 10 * time.Second
	return w
}

// A lab must remove what it made, and nothing else: neither
// others' keys, including other labs', nor tables.
func TestARunLeavesWhatIsOthersAlone(t *testing.T) {
	t.Parallel()
	redis, db := testenv.Redis(t), testenv.Database(t)
	rdb := redis.Client()
	pool, err := sql.Open("mysql", db.DSN)
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close()) }()
	_, err = pool.ExecContext(t.Context(), "CREATE TABLE lab_stock (campaign_id VARCHAR(64) PRIMARY KEY, remaining BIGINT)")
	require.NoError(t, err)
	for _, key := range []string{"mine", "dibs:lab:{another-run}:stock", "dibs:lab:x"} {
		require.NoError(t, rdb.Set(t.Context(), key, "1", 0).Err())
	}
	_, err = lab.Run(t.Context(), lab.Options{Workload: brief("lua-update"), RedisURL: redis.URL(), MySQLDSN: db.DSN, Self: self, Progress: quiet})
	require.NoError(t, err)
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"mine", "dibs:lab:{another-run}:stock", "dibs:lab:x"}, keys)
	var rows int
	require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lab_stock").Scan(&rows))
	require.Zero(t, rows, "it works in a database of its own")
}
