package cmd

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/config"
	"dibs/internal/redisconn"
	"dibs/internal/sleep"
)

const (
	firstCheckTimeout = 5 * time.Second // of a role that may start without Redis
	laterCheckEvery   = time.Second
	laterWarnEvery    = 30 * time.Second
)

// redisMayBeAway is for roles: they start while a server of Redis is away, and check it as soon as it is there.
func redisMayBeAway(s *stack) { s.redisMayBeAway = true }

// check is something that a process checks of Redis when it starts.
type check struct {
	run  func(context.Context) error
	last time.Time // when its failure was logged
}

// orLater runs a check. If it fails for a reason that may pass, and Redis may be away, awaitRedis tries it again.
func (s *stack) orLater(ctx context.Context, run func(context.Context) error) error {
	if !s.redisMayBeAway {
		return run(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, firstCheckTimeout)
	defer cancel()
	err := run(bounded)
	if ctx.Err() != nil || !mayPass(err) {
		return err
	}
	s.log.Warn("redis, or a server of it, does not answer as it must; the process starts, and checks it again until it does", "error", err)
	s.later = append(s.later, check{run: run, last: time.Now()})
	return nil
}

func mayPass(err error) bool {
	return redisconn.MayPass(err) && exitCode(err) == ExitFailed
}

// awaitRedis runs the checks that failed at the start until each has passed, and returns nil then or when ctx ends. Errors: a refusal that
// cannot pass.
func (s *stack) awaitRedis(ctx context.Context) error {
	if len(s.later) == 0 {
		return nil
	}
	for i := range s.later {
		for one := &s.later[i]; ; {
			if sleep.For(ctx, laterCheckEvery) != nil {
				return nil //nolint:nilerr // it was stopped
			}
			bounded, cancel := context.WithTimeout(ctx, startTimeout)
			err := one.run(bounded)
			cancel()
			if err == nil {
				break
			}
			if !mayPass(err) && ctx.Err() == nil {
				return err
			}
			if time.Since(one.last) >= laterWarnEvery {
				s.log.Warn("redis, or a server of it, still does not answer as it must", "error", err)
				one.last = time.Now()
			}
		}
	}
	s.log.Info("redis is there, and as it must be")
	s.warn()
	return nil
}

// checkRedis checks every master: each holds campaigns of its own. What one refuses for good comes before what may pass.
func (s *stack) checkRedis(ctx context.Context) error {
	err := redisconn.CheckTopology(ctx, s.rdb, s.redisURL())
	if err == nil {
		err = redisconn.EachMaster(ctx, s.rdb, s.checkServer)
	}
	return config.RefuseIf(err, redisconn.ErrURL, "REDIS_URL")
}

// checkServer refuses a server that evicts, and notes one that forgets. It reads INFO, which managed services allow where they
// forbid CONFIG.
func (s *stack) checkServer(ctx context.Context, node *redis.Client) error {
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

// warn says what may be so but should not: once a role was not refused, for a refusal is one line.
func (s *stack) warn() {
	if s.redisNotPersistent.Swap(false) {
		s.log.Warn("redis runs with appendonly no: when it ends, the claims that MySQL does not have yet are lost")
	}
	if advice := s.aclAdvice.Swap(nil); advice != nil {
		s.log.Warn("redis may forget its claims when it starts again", slog.String("advice", *advice))
	}
}
