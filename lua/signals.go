package lua

import (
	"context"

	"github.com/redis/go-redis/v9"

	"dibs/models"
)

// signalOffset is a field of the signals of a partition: how far MySQL has applied its claim stream.
const signalOffset = "offset"

// Signal tells API processes how far MySQL has applied claim streams, by partition. It is a hint when to ask MySQL, and proves
// nothing: a Redis that is restored tells what was so once. Errors as State.
func (s *Scripts) Signal(ctx context.Context, offsets map[int]models.Offset) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for partition, at := range offsets {
			p.HSet(ctx, signalsKey(partition), signalOffset, at.EntryID+" "+at.EventID)
		}
		return nil
	})
	return classifyError("signal", err)
}

// Signaled returns what Signal told last of some partitions, as texts that change with the offset; "" is nothing, or of a server that does
// not answer.
func (s *Scripts) Signaled(ctx context.Context, partitions []int) []string {
	read := make([]*redis.StringCmd, len(partitions))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, partition := range partitions {
			read[i] = p.HGet(ctx, signalsKey(partition), signalOffset)
		}
		return nil
	})
	offsets := make([]string, len(partitions))
	for i := range read {
		offsets[i] = read[i].Val()
	}
	return offsets
}
