package lua

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// LotView is what Redis holds of a lot, and then of the claim stream of its partition.
type LotView struct {
	State   State
	Err     error  // of State: ErrAbsent, ErrDamaged, or nil
	Epoch   int64  // of the state, as far as a damaged one has it
	Status  string // of the state, as far as a damaged one has it
	Evicted Position
	PartitionView
}

// PartitionView is what Redis holds of the claim stream of a partition.
type PartitionView struct {
	Stream Stream // without At
}

// lotReply are the commands about a lot.
type lotReply struct {
	state    onceCmd
	damaged  *redis.SliceCmd
	evicted  *redis.StringCmd
	streamed *partitionReply
}

// partitionReply are the commands about a partition.
type partitionReply struct {
	tip    EntryID
	stream streamReply
}

// Lots reads lots, and then the streams of their partitions, in one round trip to each server, in their order. tips are entries that were
// in the streams, by partition, see Streams. Errors as State.
func (s *Scripts) Lots(ctx context.Context, ids []string, tips map[int]EntryID) ([]LotView, error) {
	replies := make([]lotReply, len(ids))
	partitions := make(map[int]*partitionReply)
	ask := func(p redis.Pipeliner) error {
		clear(partitions)
		for i, id := range ids {
			k := s.KeysOf(id)
			replies[i].state = scriptCmd(ctx, "evalsha", s.state.Hash(), []string{k.State, k.Users, k.Keys}, nil)
			_ = p.Process(ctx, replies[i].state)
			replies[i].damaged = p.HMGet(ctx, k.State, "epoch", "status")
			replies[i].evicted = p.Get(ctx, k.Evicted)
		}
		for i, id := range ids {
			n := PartitionOf(id, s.Partitions())
			if partitions[n] == nil {
				partitions[n] = askPartition(ctx, p, n, tips[n])
			}
			replies[i].streamed = partitions[n]
		}
		return nil
	}
	_, _ = s.rdb.Pipelined(ctx, ask) // each command has its own error
	isNew := false
	for i, id := range ids {
		if err := replies[i].state.Err(); redis.HasErrorPrefix(err, "NOSCRIPT") || redis.HasErrorPrefix(err, "TRYAGAIN") {
			isNew = true
			_, _ = s.State(ctx, id) // its server knows the script then
		}
	}
	if isNew {
		_, _ = s.rdb.Pipelined(ctx, ask)
	}
	views := make([]LotView, len(ids))
	for i, id := range ids {
		if err := s.readLot(id, &replies[i], &views[i]); err != nil {
			return nil, err
		}
	}
	return views, nil
}

func askPartition(ctx context.Context, p redis.Pipeliner, partition int, tip EntryID) *partitionReply {
	return &partitionReply{tip: tip, stream: askStream(ctx, p, partition, tip)}
}

func (s *Scripts) readLot(id string, r *lotReply, v *LotView) error {
	reply, err := r.state.Slice()
	if err != nil {
		return classifyError(s.state.name, err)
	}
	k := s.KeysOf(id)
	v.State, v.Err = s.readState(id, []string{k.State, k.Users, k.Keys}, reply)
	if v.Err != nil && !errors.Is(v.Err, ErrAbsent) && !errors.Is(v.Err, ErrDamaged) {
		return v.Err
	}
	var held struct {
		Epoch  int64  `redis:"epoch"`
		Status string `redis:"status"`
	}
	_ = r.damaged.Scan(&held) // what cannot be read is damaged
	v.Epoch = max(v.State.Epoch, held.Epoch)
	v.Status = held.Status
	v.Evicted, err = readTombstone(id, r.evicted)
	if errors.Is(err, ErrDamaged) && errors.Is(v.Err, ErrAbsent) {
		v.Err = err
	} else if err != nil && !errors.Is(err, ErrDamaged) {
		return err
	}
	v.Stream, err = r.streamed.stream.read(PartitionOf(id, s.Partitions()), r.streamed.tip)
	return err
}

// readTombstone reads what EVICTED holds; zero is no tombstone.
func readTombstone(id string, reply *redis.StringCmd) (at Position, err error) {
	text, err := reply.Result()
	switch {
	case errors.Is(err, redis.Nil):
		return Position{}, nil
	case err != nil && !isWrongType(err):
		return Position{}, classifyError("get", err)
	}
	if _, scanErr := fmt.Sscanf(text, "%d:%d", &at.Epoch, &at.Seq); err != nil || scanErr != nil || tombstone(at) != text {
		return Position{}, fmt.Errorf("%w: %s: the tombstone of an eviction reads %.40q", ErrDamaged, id, text)
	}
	return at, nil
}
