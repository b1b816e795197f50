package lua

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// flushesKept is how many flushes Redis remembers of a partition. Those that a MySQL loses are the last that it committed, and among
// so many are the last ones of as many consumers.
const flushesKept = 16

// Committed is what Redis remembers of what MySQL has committed of a partition.
type Committed struct {
	Flushes []string // ids in stock_flushes, the last ones
	Tip     EntryID  // how far MySQL has recorded the claim stream; zero if that is not remembered
}

// RecordFlushes remembers flushes that MySQL has committed, one a partition, by their ids in stock_flushes. Errors as Stream.
func (s *Scripts) RecordFlushes(ctx context.Context, byPartition map[int]string) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for partition, id := range byPartition {
			p.LPush(ctx, flushesKey(partition), id)
			p.LTrim(ctx, flushesKey(partition), 0, flushesKept-1)
		}
		return nil
	})
	if err != nil {
		return sortError("lpush", err)
	}
	return nil
}

// RecordTip remembers how far MySQL has recorded the claim stream of a partition. Errors as Stream.
func (s *Scripts) RecordTip(ctx context.Context, partition int, tip EntryID) error {
	if err := s.rdb.Set(ctx, recordedKey(partition), tip.String(), 0).Err(); err != nil {
		return sortError("set", err)
	}
	return nil
}

// Committed is what Redis remembers of some partitions, in their order. Errors as Stream.
func (s *Scripts) Committed(ctx context.Context, partitions ...int) ([]Committed, error) {
	lists, tips := make([]*redis.StringSliceCmd, len(partitions)), make([]*redis.StringCmd, len(partitions))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, partition := range partitions {
			lists[i], tips[i] = p.LRange(ctx, flushesKey(partition), 0, -1), p.Get(ctx, recordedKey(partition))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, sortError("lrange", err)
	}
	all := make([]Committed, len(partitions))
	for i := range all {
		if err := errors.Join(lists[i].Err(), notNil(tips[i].Err())); err != nil {
			return nil, sortError("lrange", err)
		}
		all[i].Flushes = lists[i].Val()
		if tips[i].Err() != nil {
			continue
		}
		if all[i].Tip, err = ParseEntryID(tips[i].Val()); err != nil {
			return nil, fmt.Errorf("lua: %s: %w", recordedKey(partitions[i]), err)
		}
	}
	return all, nil
}

func notNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// ForgetCommitted forgets what MySQL committed of a partition: it is known to lack some of it. Errors as Stream.
func (s *Scripts) ForgetCommitted(ctx context.Context, partition int) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, recordedKey(partition))
		p.Del(ctx, flushesKey(partition))
		return nil
	})
	if err != nil {
		return sortError("del", err)
	}
	return nil
}

// ForgetTip forgets how far MySQL has recorded the claim stream of a partition, which begins anew. Errors as Stream.
func (s *Scripts) ForgetTip(ctx context.Context, partition int) error {
	if err := s.rdb.Del(ctx, recordedKey(partition)).Err(); err != nil {
		return sortError("del", err)
	}
	return nil
}

// AnyLoad is above the number of every load.
const AnyLoad int64 = 999_999_999_999_999
