package cmd

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"dibs/internal/config"
	"dibs/internal/redisconn"
	"dibs/lua"
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
		return config.RefuseIf(redisconn.EachMaster(ctx, s.rdb, s.checkFsync), redisconn.ErrFsync, "DURABILITY")
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
