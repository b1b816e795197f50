package lua

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Writable returns nil if the server of every partition takes writes now. Else the error wraps ErrUnavailable and says why not, in
// Redis' words: it does not answer, is loading, out of memory, a replica, unable to save, short of replicas, or without a master for
// the slot.
//
// It pushes to a list that never exists. Redis checks that as any write that needs memory, and then does nothing.
func (s *Scripts) Writable(ctx context.Context) error {
	cmds, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for partition := range s.opts.Partitions {
			pipe.LPushX(ctx, noListKey(partition), "")
		}
		return nil
	})
	if err == nil {
		return nil
	}
	for _, cmd := range cmds {
		if one := cmd.Err(); one != nil && !errors.Is(one, redis.Nil) {
			return fmt.Errorf("%w: it takes no writes: %w", ErrUnavailable, one)
		}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
