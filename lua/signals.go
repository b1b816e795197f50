package lua

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"dibs/models/event"
)

// Signals are what a partition publishes to all processes, see SignalsKey.
type Signals struct {
	Generation int64
	Stops      int64
}

// Signals reads those of all partitions whose
// servers answer, in one round trip each.
func (s *Scripts) Signals(ctx context.Context) map[int]Signals {
	replies := make([]*redis.SliceCmd, s.Partitions())
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for partition := range replies {
			replies[partition] = p.HMGet(ctx, SignalsKey(partition), "generation", "stops", signalOffset)
		}
		return nil
	})
	all := make(map[int]Signals, len(replies))
	for partition, reply := range replies {
		if fields := reply.Val(); len(fields) == 3 {
			offset, _ := fields[2].(string)
			s.applied.hear(partition, offset)
			all[partition] = Signals{Generation: numberOf(fields[0]), Stops: numberOf(fields[1])}
		}
	}
	return all
}

func numberOf(value any) int64 {
	text, _ := value.(string)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// AskSeen makes processes report what they saw of lots, as if these were
// stopped. Errors as State.
func (s *Scripts) AskSeen(ctx context.Context, lots []string) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range lots {
			p.HIncrBy(ctx, SignalsKey(PartitionOf(id, s.Partitions())), "stops", 1)
		}
		return nil
	})
	return classifyError("signal", err)
}

// NextGeneration raises a partition's generation, so
// that all its lots are away. isNext is false if Redis'
// generation, inForce, is not lower. Errors as Stream.
func (s *Scripts) NextGeneration(ctx context.Context, partition int, generation int64) (isNext bool, inForce int64, err error) {
	event, payload, err := newEvent(&event.Event{Type: event.PartitionGeneration, Generation: generation, At: s.at()})
	if err != nil {
		return false, 0, err
	}
	keys := []string{SignalsKey(partition), StreamKey(partition)}
	code, reply, err := s.run(ctx, "generation", keys, []any{generation, event, payload})
	if err != nil {
		return false, 0, err
	}
	if len(reply) == 2 {
		inForce, _ = reply[1].(int64)
	}
	return code == statusOK, inForce, nil
}

const signalOffset = "offset"

// Signal publishes MySQL's offsets, by partition. They are a hint when to ask
// MySQL, and no proof: a restored Redis has old ones. Errors as State.
func (s *Scripts) Signal(ctx context.Context, offsets map[int]event.Offset) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for partition, at := range offsets {
			p.HSet(ctx, SignalsKey(partition), signalOffset, signalOf(at))
		}
		return nil
	})
	return classifyError("signal", err)
}

// Signaled returns the last signals of partitions;
// "" without one or without an answer.
func (s *Scripts) Signaled(ctx context.Context, partitions []int) []string {
	read := make([]*redis.StringCmd, len(partitions))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, partition := range partitions {
			read[i] = p.HGet(ctx, SignalsKey(partition), signalOffset)
		}
		return nil
	})
	offsets := make([]string, len(partitions))
	for i := range read {
		offsets[i] = read[i].Val()
	}
	return offsets
}
