package lua

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// awayTimeout is how long a server may take
// before its partitions count as away.
const awayTimeout = 1500 * time.Millisecond

// Away returns the partitions whose server can't answer a claim now,
// each with Redis' reason. It is silent, loading, out of memory, a
// replica or unable to save, or the slot has no master. A stalled
// server delays no other's answer.
//
// It pushes to a list that never exists. Redis checks that as any
// write, and then ignores it.
func (s *Scripts) Away(ctx context.Context) map[int]error {
	ctx, cancel := context.WithTimeout(ctx, awayTimeout)
	defer cancel()
	away := make(map[int]error)
	byNode := make(map[*redis.Client][]int)
	for partition := range s.opts.Partitions {
		node, err := s.nodeOf(ctx, noListKey(partition))
		if err != nil {
			away[partition] = takesNoWrites(err)
			continue
		}
		byNode[node] = append(byNode[node], partition)
	}
	var mu sync.Mutex
	var checks sync.WaitGroup
	for node, partitions := range byNode {
		checks.Go(func() {
			errs := s.writable(ctx, node, partitions)
			mu.Lock()
			defer mu.Unlock()
			for i, err := range errs {
				if err != nil {
					away[partitions[i]] = takesNoWrites(err)
				}
			}
		})
	}
	checks.Wait()
	return away
}

// writable returns for each partition of
// a server why it refuses writes, or nil.
func (s *Scripts) writable(ctx context.Context, node *redis.Client, partitions []int) []error {
	errs := make([]error, len(partitions))
	if s.opts.CheckServer != nil {
		if err := s.opts.CheckServer(ctx, node); err != nil {
			for i := range errs {
				errs[i] = err
			}
			return errs
		}
	}
	cmds := make([]*redis.IntCmd, len(partitions))
	_, _ = s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its own error
		for i, partition := range partitions {
			cmds[i] = pipe.LPushX(ctx, noListKey(partition), "")
		}
		return nil
	})
	for i := range cmds {
		errs[i] = cmds[i].Err()
	}
	return errs
}

func takesNoWrites(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: it takes no writes: %w", ErrUnavailable, err)
}
