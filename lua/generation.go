package lua

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Stream is the claim stream of a partition at one moment.
type Stream struct {
	StreamPosition // zero when there is no stream

	At     time.Time // by the clock of Redis: what was added before is in the stream
	First  EntryID   // the oldest entry that is in the stream; zero when there is none, or Redis doesn't say
	Length int64     // entries that are in the stream now
}

// Stream reads the position of a partition's stream. Errors: ErrUnavailable, ErrOutcomeUnknown (a read: ask again),
// ErrDamaged.
func (s *Scripts) Stream(ctx context.Context, partition int) (Stream, error) {
	streams, errs := s.Streams(ctx, []int{partition}, nil)
	return streams[0], errs[0]
}

// Streams is Stream for some partitions, in their order, in two round trips. tips are entries that were in the streams, by partition:
// one that is missing, although older ones are there, is the Gap of its stream. An error is of its partition alone.
func (s *Scripts) Streams(ctx context.Context, partitions []int, tips map[int]EntryID) ([]Stream, []error) {
	streams := make([]Stream, len(partitions))
	errs := make([]error, len(partitions))
	now, err := s.Now(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return streams, errs
	}
	replies := make([]streamReply, len(partitions))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, partition := range partitions {
			replies[i] = askStream(ctx, p, partition, tips[partition])
		}
		return nil
	})
	for i, partition := range partitions {
		streams[i], errs[i] = replies[i].read(partition, tips[partition])
		streams[i].At = now
	}
	return streams, errs
}

// streamReply is what Redis says of a stream.
type streamReply struct {
	tip        *redis.XMessageSliceCmd
	generation *redis.StringCmd
	info       *redis.XInfoStreamCmd
}

// askStream asks for the entry first: trimming takes the oldest entries, so one that is older was there as well at that moment.
func askStream(ctx context.Context, p redis.Pipeliner, partition int, tip EntryID) streamReply {
	key := StreamKey(partition)
	return streamReply{
		tip: p.XRangeN(ctx, key, tip.String(), tip.String(), 1), generation: p.Get(ctx, generationKey(partition)), info: p.XInfoStream(ctx, key),
	}
}

func (r *streamReply) read(partition int, tip EntryID) (Stream, error) {
	generation, err := r.generation.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Stream{}, classifyError("get", err)
	}
	if err := r.tip.Err(); err != nil {
		return Stream{}, classifyError("xrange", err)
	}
	info, err := r.info.Result()
	switch {
	case err != nil && strings.Contains(err.Error(), noSuchKey):
		return Stream{StreamPosition: StreamPosition{Generation: generation}}, nil
	case err != nil:
		return Stream{}, classifyError("xinfo", err)
	}
	at := StreamPosition{Generation: generation, Added: info.EntriesAdded}
	first, firstErr := ParseEntryID(info.FirstEntry.ID)
	at.Tip, err = ParseEntryID(info.LastGeneratedID)
	if err := errors.Join(err, firstErr); err != nil {
		return Stream{}, fmt.Errorf("%w: %s: %w", ErrDamaged, StreamKey(partition), err)
	}
	if at.Tip.Ms == math.MaxUint64 {
		return Stream{}, fmt.Errorf("%w: %s: its last id is %s, and no claim can have one behind it. Such an id comes from an XADD by hand. "+
			"When every group has read the stream, RENAME it and run dibs reconcile --repair", ErrDamaged, StreamKey(partition), at.Tip)
	}
	if len(r.tip.Val()) == 0 && first != (EntryID{}) && first.Less(tip) {
		at.Gap = tip
	}
	return Stream{StreamPosition: at, First: first, Length: info.Length}, nil
}

const noSuchKey = "no such key"

// NewGeneration gives a partition's stream a generation if it has none, and returns its generation.
func (s *Scripts) NewGeneration(ctx context.Context, partition int) (string, error) {
	fresh, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("lua: stream generation: %w", err)
	}
	if err := s.rdb.SetNX(ctx, generationKey(partition), fresh.String(), 0).Err(); err != nil {
		return "", classifyError("set", err)
	}
	generation, err := s.rdb.Get(ctx, generationKey(partition)).Result()
	return generation, classifyError("get", err)
}

// Generations reads the generation of every partition's stream, in one round trip. A stream that has none, because Redis lost it, has
// the empty text. A partition whose server does not answer is left out.
func (s *Scripts) Generations(ctx context.Context) map[int]string {
	cmds := make([]*redis.StringCmd, s.Partitions())
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for partition := range cmds {
			cmds[partition] = p.Get(ctx, generationKey(partition))
		}
		return nil
	})
	generations := make(map[int]string, len(cmds))
	for partition, cmd := range cmds {
		generation, err := cmd.Result()
		if err == nil || errors.Is(err, redis.Nil) {
			generations[partition] = generation
		}
	}
	return generations
}

const replaceGeneration = `
local held = redis.call('GET', KEYS[1]) or ''
if held ~= ARGV[1] then return {3} end
redis.call('SET', KEYS[1], ARGV[2])
return {0}`

// ReplaceGeneration replaces the generation of a partition's stream if it is old; "" is none. Errors: ErrOther, and those of Stream.
func (s *Scripts) ReplaceGeneration(ctx context.Context, partition int, old, generation string) error {
	code, _, err := s.ask(ctx, s.generation, []string{generationKey(partition)}, []any{old, generation})
	if err == nil && code != statusOK {
		err = fmt.Errorf("%w: stream %d has another generation", ErrOther, partition)
	}
	return err
}
