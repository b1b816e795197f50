package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"dibs/internal/config"
	"dibs/internal/redisconn"
	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/syncer/records"
)

const (
	firstCheckTimeout = 5 * time.Second // of a server, for a role that may start without it
	laterCheckEvery   = time.Second
	laterWarnEvery    = 30 * time.Second
)

// orLater runs a check of Redis. If it fails for a temporary reason, a
// process that waits retries it in awaitRedis.
func (s *Stack) orLater(ctx context.Context, run func(context.Context) error) error {
	if !s.waits {
		return run(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, firstCheckTimeout)
	defer cancel()
	err := run(bounded)
	if ctx.Err() != nil || !mayPass(err) {
		return err
	}
	s.Logger.Warn("redis, or a server of it, does not answer as it must; the process starts, and checks it again until it does", "error", err)
	s.later = append(s.later, run)
	return nil
}

func mayPass(err error) bool {
	return redisconn.MayPass(err) && !errors.Is(err, config.ErrConfig)
}

// awaitRedis retries the checks that failed at the start until each has
// passed or ctx ends. Errors: a permanent refusal.
func (s *Stack) awaitRedis(ctx context.Context) error {
	if len(s.later) == 0 {
		return nil
	}
	warning := rate.Sometimes{Interval: laterWarnEvery}
	warning.Do(func() {}) // the start has logged it
	for len(s.later) > 0 {
		if sleep.For(ctx, laterCheckEvery) != nil {
			return nil //nolint:nilerr // it was stopped
		}
		bounded, cancel := context.WithTimeout(ctx, startTimeout)
		err := s.later[0](bounded)
		cancel()
		switch {
		case err == nil:
			s.later = s.later[1:]
		case !mayPass(err) && ctx.Err() == nil:
			return err
		default:
			warning.Do(func() { s.Logger.Warn("redis, or a server of it, still does not answer as it must", "error", err) })
		}
	}
	s.Logger.Info("redis is there, and as it must be")
	s.warn()
	return nil
}

// checkRedis checks every master, as each holds its own campaigns. A
// permanent refusal is returned before a temporary failure.
func (s *Stack) checkRedis(ctx context.Context) error {
	err := redisconn.CheckTopology(ctx, s.Redis, s.redisURL())
	if err == nil {
		err = redisconn.EachMaster(ctx, s.Redis, s.checkServer)
	}
	return config.RefuseIf(err, redisconn.ErrURL, "REDIS_URL")
}

// checkServer refuses a server that evicts, and notes one without
// persistence. It reads INFO, which managed services allow even if they
// forbid CONFIG.
func (s *Stack) checkServer(ctx context.Context, node *redis.Client) error {
	info, err := redisconn.Info(ctx, node)
	if err == nil {
		err = redisconn.CheckPolicy(ctx, node, info, s.redisURL())
	}
	if err != nil {
		return err
	}
	advice, err := redisconn.DefaultUserAdvice(ctx, node, info)
	if err != nil {
		return err
	}
	if info["aof_enabled"] == "0" {
		s.redisNotPersistent.Store(true)
	}
	if advice != "" {
		s.aclAdvice.Store(&advice)
	}
	return nil
}

// warn logs advice after a role was accepted, because a refusal must be a
// single line.
func (s *Stack) warn() {
	if s.redisNotPersistent.Swap(false) {
		s.Logger.Warn("redis runs with appendonly no: when it ends, the claims that MySQL does not have yet are lost")
	}
	if advice := s.aclAdvice.Swap(nil); advice != nil {
		s.Logger.Warn("redis may forget its claims when it starts again", slog.String("advice", *advice))
	}
}

// errEmbedded refuses what needs a Redis with a disk.
var errEmbedded = fmt.Errorf("%w: the embedded Redis has no disk: fsync needs a Redis of its own", redisconn.ErrFsync)

// checkDurability runs before claims are accepted, so that no claim gets a
// promise that Redis can't keep.
func (s *Stack) checkDurability(ctx context.Context) error {
	if !s.TakesClaims || s.fsync() == redisconn.NoFsync {
		return nil
	}
	if s.Config.RedisURL == "" {
		return config.Refuse("DURABILITY", "%w", errEmbedded)
	}
	return s.orLater(ctx, func(ctx context.Context) error {
		return config.RefuseIf(redisconn.EachMaster(ctx, s.Redis, s.checkFsync), redisconn.ErrFsync, "DURABILITY")
	})
}

func (s *Stack) checkFsync(ctx context.Context, node *redis.Client) error {
	return redisconn.CheckFsync(ctx, node, s.fsync())
}

func (s *Stack) fsync() redisconn.Fsync {
	switch s.Config.Durability {
	case lua.Fsync:
		return redisconn.MustFsync
	case lua.Vouched:
		return redisconn.VouchedFsync
	default:
		return redisconn.NoFsync
	}
}

type committed struct {
	*records.Claims

	scripts *lua.Scripts
}

// Signaled returns the consumers' last signals.
func (c committed) Signaled(ctx context.Context, partitions []int) []string {
	return c.scripts.Signaled(ctx, partitions)
}
