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
	return classifyError("lpush", err)
}

// RecordTip remembers how far MySQL has recorded the claim stream of a partition. Errors as Stream.
func (s *Scripts) RecordTip(ctx context.Context, partition int, tip EntryID) error {
	return classifyError("set", s.rdb.Set(ctx, recordedKey(partition), tip.String(), 0).Err())
}

// Committed is what Redis remembers of some partitions, in their order. An error is of its partition alone. Errors as Stream.
func (s *Scripts) Committed(ctx context.Context, partitions ...int) ([]Committed, []error) {
	lists := make([]*redis.StringSliceCmd, len(partitions))
	tips := make([]*redis.StringCmd, len(partitions))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, partition := range partitions {
			lists[i] = p.LRange(ctx, flushesKey(partition), 0, -1)
			tips[i] = p.Get(ctx, recordedKey(partition))
		}
		return nil
	})
	all := make([]Committed, len(partitions))
	errs := make([]error, len(partitions))
	for i := range all {
		all[i], errs[i] = readCommitted(partitions[i], lists[i], tips[i])
	}
	return all, errs
}

func readCommitted(partition int, flushes *redis.StringSliceCmd, recorded *redis.StringCmd) (all Committed, err error) {
	tip, err := recorded.Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	err = errors.Join(flushes.Err(), err)
	if err != nil {
		return all, classifyError("lrange", err)
	}
	all.Flushes = flushes.Val()
	all.Tip, err = ParseEntryID(tip)
	if err != nil {
		return all, fmt.Errorf("lua: %s: %w", recordedKey(partition), err)
	}
	return all, nil
}

// ForgetCommitted forgets what MySQL committed of a partition: it is known to lack some of it. Errors as Stream.
func (s *Scripts) ForgetCommitted(ctx context.Context, partition int) error {
	return classifyError("del", s.rdb.Del(ctx, recordedKey(partition), flushesKey(partition)).Err())
}

// AnyLoad is above the number of every load.
const AnyLoad int64 = 999_999_999_999_999
