package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/config"
	"dibs/internal/sleep"
	"dibs/lua"
)

// ErrEviction says that Redis may throw keys away, which would lose claims.
var ErrEviction = errors.New("cmd: redis evicts keys")

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
	return lua.MayPass(err) && !errors.Is(err, ErrEviction) && exitCode(err) == ExitFailed
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
	if err := lua.CheckTopology(ctx, s.rdb, s.redisURL()); err != nil {
		return config.RefuseIf(err, lua.ErrURL, "REDIS_URL")
	}
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return s.checkServer(ctx, s.rdb)
	}
	var mu sync.Mutex
	var refused, passing error
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		err := s.checkServer(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		if mayPass(err) {
			passing = err
		} else if err != nil {
			refused = err
		}
		return nil
	})
	for _, one := range []error{refused, passing} {
		if one != nil {
			return one
		}
	}
	return err
}

// checkServer refuses a server that evicts, and notes one that forgets. It reads INFO, which managed services allow where they
// forbid CONFIG.
func (s *stack) checkServer(ctx context.Context, rdb redis.UniversalClient) error {
	info, err := lua.Info(ctx, rdb)
	if err != nil {
		return fmt.Errorf("cmd: redis does not answer: %w", err)
	}
	policy, err := lua.Policy(ctx, rdb, info, s.redisURL())
	switch {
	case err != nil:
		return fmt.Errorf("cmd: redis does not answer: %w", err)
	case policy == "":
		return config.Refuse("REDIS_URL", "names a server that says its maxmemory-policy neither by INFO nor by CONFIG GET:"+
			" it must be noeviction; add the option maxmemory_policy=noeviction if it is")
	case policy != lua.Noeviction:
		return fmt.Errorf("%w: its maxmemory-policy is %q; set it to noeviction", ErrEviction, policy)
	}
	advice, err := lua.DefaultUserAdvice(ctx, rdb)
	if err != nil {
		return fmt.Errorf("cmd: redis: %w", err)
	}
	if info["aof_enabled"] == "0" && !lua.IsLoading(info) {
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
