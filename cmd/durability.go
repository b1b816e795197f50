package cmd

import (
	"context"
	"fmt"

	"dibs/lua"
)

// errEmbedded refuses what needs a Redis with a disk.
var errEmbedded = fmt.Errorf("%w: the embedded Redis keeps nothing, so only fast can be kept", lua.ErrDurability)

// checkDurability comes before claims are taken: a promise that Redis can't keep is refused, not given. Roles that take
// none go without: books must be written even while a replica is away.
func (s *stack) checkDurability(ctx context.Context) error {
	if !s.cfg.Durability.Waits() {
		return nil
	}
	if s.cfg.RedisURL == "" {
		return refusedSetting(errEmbedded, "DURABILITY")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	advice, err := s.scripts.CheckDurability(ctx)
	for _, line := range advice {
		s.log.Warn("durability", "advice", line, "durability", s.cfg.Durability.String())
	}
	return refusedIf(err, lua.ErrDurability, "DURABILITY")
}

// replicated is what readers of events wait for, see consumer.Config; nil is nothing.
func (s *stack) replicated() (func(ctx context.Context, stream string) error, error) {
	if s.cfg.Durability.Replicas == 0 {
		return nil, nil //nolint:nilnil // there is nothing to wait for
	}
	scripts, err := lua.New(s.rdb, lua.Options{Partitions: s.cfg.Partitions, Durability: s.cfg.Durability})
	if err != nil {
		return nil, err
	}
	return scripts.AwaitReplicas, nil
}
