package redisconn_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

// replyError is a reply of a server, or of a proxy in front of it.
type replyError string

func (a replyError) Error() string { return string(a) }
func (replyError) RedisError()     {}

func TestMayPass_OnlyWhatAPersonMustMendDoesNot(t *testing.T) {
	t.Parallel()
	for text, passes := range map[replyError]bool{
		"NOAUTH Authentication required.": false, "WRONGPASS invalid username-password pair": false, "NOPERM this user has no permissions": false,
		"ERR DB index is out of range": false, "ERR unknown command 'evalsha'": false,
		"LOADING Redis is loading the dataset in memory": true, "CLUSTERDOWN The cluster is down": true, "ERR max number of clients reached": true,
		"ERR upstream failure": true, "ERR Connection timed out": true, "upstream failure": true,
	} {
		require.Equal(t, passes, redisconn.MayPass(fmt.Errorf("wrapped: %w", text)), string(text))
	}
	// the former is a TLS alert
	for op, passes := range map[string]bool{"remote error": false, "dial": true} {
		require.Equal(t, passes, redisconn.MayPass(&net.OpError{Op: op, Err: errors.New("tls: certificate required")}), op)
	}
}

func TestHealthOfARedis(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	rdb := server.Client()
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "512mb").Err())
	h, err := redisconn.HealthOf(t.Context(), rdb)
	require.NoError(t, err)
	require.Positive(t, h.UsedBytes)
	require.EqualValues(t, 512<<20, h.LimitBytes)
	_, err = redisconn.HealthOf(t.Context(), connect(t, "redis://"+miniredis.RunT(t).Addr()))
	require.NoError(t, err, "it does not say how much it uses")
}

func TestCheckPolicy_OfAServerThatHidesIt(t *testing.T) {
	t.Parallel()
	evicts := testenv.Redis(t, "maxmemory-policy allkeys-lru").Addr()
	mute := testenv.Redis(t, `rename-command CONFIG ""`).Addr()
	hiding := func(addr string) string { return machine.Rewriting(t, addr, "maxmemory_policy", "xxxxxxxxx_policy") }
	const vouched = "?maxmemory_policy=noeviction"
	for url, want := range map[string]error{
		evicts: redisconn.ErrEviction, evicts + vouched: redisconn.ErrEviction,
		hiding(evicts): redisconn.ErrEviction, hiding(evicts) + vouched: redisconn.ErrEviction,
		mute: nil, hiding(mute): redisconn.ErrURL, hiding(mute) + vouched: nil,
	} {
		rdb := connect(t, "redis://"+url).(*redis.Client)
		info, err := redisconn.Info(t.Context(), rdb)
		require.NoError(t, err)
		err = redisconn.CheckPolicy(t.Context(), rdb, info, "redis://"+url)
		require.ErrorIs(t, err, want, strings.ReplaceAll(url, vouched, " vouched"))
		require.False(t, redisconn.MayPass(err))
	}
	_, err := redisconn.Connect("redis://a?maxmemory_policy=allkeys-lru")
	require.ErrorContains(t, err, "maxmemory_policy must be noeviction")
	connect(t, "redis+sentinel://a:1/m"+vouched)
}
