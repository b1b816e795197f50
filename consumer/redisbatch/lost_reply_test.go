package redisbatch_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// cutConn loses the first reply that has an entry, with its connection.
type cutConn struct {
	net.Conn

	cut chan struct{}
	was *atomic.Bool
}

func (c cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if bytes.Contains(p[:n], []byte("payload")) && c.was.CompareAndSwap(false, true) {
		_ = c.Close()
		close(c.cut)
		return 0, io.EOF
	}
	return n, err
}

func TestSubscriber_ALostReplyKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T, dial dialer) redis.UniversalClient{
		"alone": func(t *testing.T, dial dialer) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: testenv.SharedRedis(t).Addr(), Dialer: dial, MaxRetries: 3})
		},
		"cluster": func(t *testing.T, dial dialer) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: testenv.RedisCluster(t, 1), Dialer: dial, MaxRetries: -1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cut := make(chan struct{})
			var was atomic.Bool
			rdb := connect(t, func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return cutConn{Conn: conn, cut: cut, was: &was}, err
			})
			t.Cleanup(func() { _ = rdb.Close() })
			f := newFixture(t, rdb)
			f.publish(0, 1)
			cfg := f.config("a")
			cfg.BlockTime = 5 * time.Second // also of a read that is sent again
			cfg.MinIdle = time.Minute
			messages := f.subscribe(cfg)
			<-cut
			f.publish(1, 1)
			require.Equal(t, names(0, 2), take(t, messages, 2))
		})
	}
}
