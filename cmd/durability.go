package cmd

import (
	"context"
	"fmt"

	"dibs/internal/config"
	"dibs/lua"
	"dibs/syncer/campaigns"
)

// errEmbedded refuses what needs a Redis with a disk.
var errEmbedded = fmt.Errorf("%w: the embedded Redis has no disk: fsync needs a Redis of its own", lua.ErrDurability)

// checkDurability comes before claims are taken: a promise that Redis can't keep is refused, not given.
func (s *stack) checkDurability(ctx context.Context) error {
	if !s.takesClaims || !s.cfg.Durability.IsFsync() {
		return nil
	}
	if s.cfg.RedisURL == "" {
		return config.Refuse("DURABILITY", "%w", errEmbedded)
	}
	return s.orLater(ctx, func(ctx context.Context) error {
		advice, err := s.scripts.CheckDurability(ctx)
		if err != nil {
			return config.RefuseIf(err, lua.ErrDurability, "DURABILITY")
		}
		for _, line := range advice {
			s.log.Warn("durability", "advice", line, "durability", s.cfg.Durability.String())
		}
		return nil
	})
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
