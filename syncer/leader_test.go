package syncer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/syncer"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

const leaseFor = 1500 * time.Millisecond // shorter, and a busy machine loses a lease that it holds

func stand(t *testing.T, server *testenv.RedisServer) (*syncer.Leader, func()) {
	t.Helper()
	l := syncer.NewLeader(syncertest.ScriptsOn(t, server.Client(), 1), "one", syncertest.Quiet()).LeaseFor(leaseFor)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stop := sync.OnceFunc(func() { cancel(); require.NoError(t, <-done) })
	t.Cleanup(stop)
	return l, stop
}

func TestLeader_ADeadOneIsReplacedWithinItsLease(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	rdb := server.Client()
	require.NoError(t, rdb.Set(t.Context(), "dibs:leader", "one that was killed", leaseFor).Err())
	started := time.Now()
	l, _ := stand(t, server)
	require.Eventually(t, l.Leads, time.Minute, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(started), leaseFor/2, "not before the lease ran out")
}

func TestLeader_StopsWorkWhenTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		take   func(t *testing.T, server *testenv.RedisServer)
		within time.Duration
	}{
		"taken over": {func(t *testing.T, server *testenv.RedisServer) {
			require.NoError(t, server.Client().Set(t.Context(), "dibs:leader", "another", 0).Err())
		}, leaseFor - leaseFor/10}, // by the next renewal, a third of the lease later
		"redis hangs": {func(_ *testing.T, server *testenv.RedisServer) { server.Pause() }, 2*leaseFor + leaseFor/2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			l, _ := stand(t, server)
			require.Eventually(t, l.Leads, time.Minute, time.Millisecond)
			c.take(t, server)
			started := time.Now()
			led, err := l.Do(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
			require.True(t, led)
			require.ErrorIs(t, err, syncer.ErrLeaseLost)
			require.Less(t, time.Since(started), c.within)
			require.False(t, l.Leads())
			if name == "redis hangs" {
				server.Resume()
				require.Eventually(t, l.Leads, time.Minute, time.Millisecond)
			}
		})
	}
}

// A follower tries every tenth of a lease, so
// it would lead long before the work is done.
func TestLeader_WhoFollowsWaitsForRunningWork(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	a, stopA := stand(t, server)
	require.Eventually(t, a.Leads, time.Minute, time.Millisecond)
	b, _ := stand(t, server)
	started, ended := make(chan struct{}), atomic.Bool{}
	var g errgroup.Group
	g.Go(func() error {
		_, err := a.Do(t.Context(), func(context.Context) error {
			close(started)
			time.Sleep(4 * leaseFor / 10) //nolint:forbidigo // the work, which ignores its context for a while
			ended.Store(true)
			return nil
		})
		return err
	})
	<-started
	g.Go(func() error { stopA(); return nil })
	require.Eventually(t, b.Leads, time.Minute, time.Millisecond)
	require.True(t, ended.Load(), "the work of the one before")
	require.NoError(t, g.Wait())
}
