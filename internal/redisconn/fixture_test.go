package redisconn_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func connect(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	rdb, err := redisconn.Connect(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

var fsyncing = []string{"appendonly yes", "appendfsync always", "aof-load-truncated no"}
