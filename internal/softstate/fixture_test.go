package softstate_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/softstate"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func eachRedis(t *testing.T, test func(t *testing.T, s *softstate.Store, scripts *lua.Scripts, rdb redis.UniversalClient)) {
	t.Helper()
	for name, url := range map[string]string{"embedded": "redis://" + miniredis.RunT(t).Addr(), "real": testenv.Redis(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, scripts, rdb := open(t, url, 1)
			test(t, s, scripts, rdb)
		})
	}
}

func open(t *testing.T, url string, partitions int) (*softstate.Store, *lua.Scripts, redis.UniversalClient) {
	t.Helper()
	rdb, err := redisconn.Connect(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	scripts, err := lua.New(rdb, lua.Options{Partitions: partitions})
	require.NoError(t, err)
	return softstate.New(rdb, scripts), scripts, rdb
}
