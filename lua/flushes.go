package lua

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// flushesKept is how many flushes Redis remembers of a partition. Those that a MySQL loses are the last that it committed, and among
// so many are the last ones of as many consumers.
const flushesKept = 16

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

// Flushes are the ids of flushes that MySQL has committed, the last ones of each of some partitions. Errors as Stream.
func (s *Scripts) Flushes(ctx context.Context, partitions ...int) (ids []string, err error) {
	lists := make([]*redis.StringSliceCmd, len(partitions))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, partition := range partitions {
			lists[i] = p.LRange(ctx, flushesKey(partition), 0, -1)
		}
		return nil
	})
	if err != nil {
		return nil, sortError("lrange", err)
	}
	for _, list := range lists {
		ids = append(ids, list.Val()...)
	}
	return ids, nil
}

// ForgetFlushes forgets the flushes of a partition: MySQL is known to lack some of them. Errors as Stream.
func (s *Scripts) ForgetFlushes(ctx context.Context, partition int) error {
	if err := s.rdb.Del(ctx, flushesKey(partition)).Err(); err != nil {
		return sortError("del", err)
	}
	return nil
}

// AnyLoad is above the number of every load.
const AnyLoad int64 = 999_999_999_999_999
