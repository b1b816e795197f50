package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
)

// ErrEviction says that Redis may throw keys away, which would lose claims.
var ErrEviction = errors.New("cmd: redis evicts keys")

// checkRedis looks at every master: each holds campaigns of its own.
func (s *stack) checkRedis(ctx context.Context) error {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return s.checkServer(ctx, master) })
	}
	return s.checkServer(ctx, s.rdb)
}

// checkServer refuses a server that evicts, and takes down that one forgets. It reads INFO, which managed services allow where they
// forbid CONFIG.
func (s *stack) checkServer(ctx context.Context, rdb redis.UniversalClient) error {
	info, err := rdb.Info(ctx).Result()
	if err != nil {
		return fmt.Errorf("cmd: redis does not answer: %w", err)
	}
	if policy := infoField(info, "maxmemory_policy"); policy != "noeviction" {
		return fmt.Errorf("%w: its maxmemory-policy is %q; set it to noeviction", ErrEviction, policy)
	}
	if infoField(info, "aof_enabled") == "0" {
		s.forgets.Store(true)
	}
	advice, err := lua.DefaultUserAdvice(ctx, rdb)
	if advice != "" {
		s.advice.Store(&advice)
	}
	return err
}

// warn says what may be so but should not: once a role was not refused, for a refusal is one line.
func (s *stack) warn() {
	if s.forgets.Load() {
		s.log.Warn("redis runs with appendonly no: when it ends, the claims that MySQL does not have yet are lost")
	}
	if advice := s.advice.Load(); advice != nil {
		s.log.Warn("redis may forget its claims when it starts again", slog.String("advice", *advice))
	}
}

// infoField reads a field of INFO; "" if there is none.
func infoField(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}
