package cmd

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/config"
	"dibs/internal/redisconn"
	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// errEmbedded refuses what needs a Redis with a disk.
var errEmbedded = fmt.Errorf("%w: the embedded Redis has no disk: fsync needs a Redis of its own", redisconn.ErrFsync)

// checkDurability comes before claims are taken: a promise that Redis can't keep is refused, not given.
func (s *stack) checkDurability(ctx context.Context) error {
	if !s.takesClaims || s.fsync() == redisconn.NoFsync {
		return nil
	}
	if s.cfg.RedisURL == "" {
		return config.Refuse("DURABILITY", "%w", errEmbedded)
	}
	return s.orLater(ctx, func(ctx context.Context) error {
		return refusedIf(redisconn.EachMaster(ctx, s.rdb, s.checkFsync), redisconn.ErrFsync, "DURABILITY")
	})
}

// checkFsync checks a server for the configured durability.
func (s *stack) checkFsync(ctx context.Context, node *redis.Client) error {
	return redisconn.CheckFsync(ctx, node, s.fsync())
}

// fsync is what the configured durability asks of servers.
func (s *stack) fsync() redisconn.Fsync {
	switch s.cfg.Durability {
	case lua.Fsync:
		return redisconn.MustFsync
	case lua.Vouched:
		return redisconn.VouchedFsync
	default:
		return redisconn.NoFsync
	}
}

// committed knows which claims MySQL has.
type committed struct {
	*campaigns.Claims

	scripts *lua.Scripts
}

// Signaled is what consumers signaled last.
func (c committed) Signaled(ctx context.Context, partitions []int) []string {
	return c.scripts.Signaled(ctx, partitions)
}

const (
	signalTimeout = time.Second            // of one signal
	signalPause   = 100 * time.Millisecond // before it is tried again
)

// offsetSignal tells API processes and readers how far MySQL has applied the claim streams, beside
// the flushes: they don't wait for a Redis that hangs.
type offsetSignal struct {
	scripts *lua.Scripts
	wake    chan struct{} // has a token when there is something to tell
	stop    func()

	mu      sync.Mutex
	offsets map[int]models.Offset // to tell
}

func newOffsetSignal(scripts *lua.Scripts) *offsetSignal {
	s := &offsetSignal{scripts: scripts, wake: make(chan struct{}, 1), offsets: make(map[int]models.Offset)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	s.stop = func() {
		cancel()
		running.Wait()
	}
	return s
}

func (s *offsetSignal) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-s.wake:
			for !s.signal() && sleep.For(ctx, signalPause) == nil { //nolint:revive // until all is told
			}
		case <-ctx.Done():
		}
	}
	_ = s.signal() // whoever reads next tells it anew
}

// signal reports whether Redis was told all.
func (s *offsetSignal) signal() bool {
	s.mu.Lock()
	told := maps.Clone(s.offsets)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	if s.scripts.Signal(ctx, told) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.offsets, func(partition int, at models.Offset) bool { return told[partition] == at })
	return true
}

// tell may be called by any goroutine.
func (s *offsetSignal) tell(offsets map[int]models.Offset) {
	s.mu.Lock()
	maps.Copy(s.offsets, offsets)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it will be seen
	}
}
