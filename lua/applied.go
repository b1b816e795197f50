package lua

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"dibs/models/event"
)

// applied is MySQL's offset of each partition, as far as this process
// knows. A MySQL behind it was restored, or is a lagging replica.
// Entries that it has yet to apply may undo its answers.
type applied struct {
	mu sync.Mutex
	at map[int]appliedAt
}

type appliedAt struct {
	generation int64
	entry      EntryID
}

func (a appliedAt) less(b appliedAt) bool {
	return a.generation < b.generation || a.generation == b.generation && a.entry.Less(b.entry)
}

// IsBehind reports whether MySQL's offset is behind the known one of a
// partition. If not, it becomes the known one. Of a recovering partition
// only the generation does: its entry may be one that Redis lost.
func (s *Scripts) IsBehind(partition int, offset event.Offset) (bool, error) {
	entry, err := ParseEntryID(offset.EntryID)
	if err != nil {
		return false, err
	}
	at := appliedAt{offset.Generation, entry}
	isBehind := s.applied.isBehind(partition, at)
	if offset.State == event.PartitionRecovering {
		at.entry = EntryID{}
	}
	s.applied.know(partition, at)
	return isBehind, nil
}

func (a *applied) isBehind(partition int, at appliedAt) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return at.less(a.at[partition])
}

// know keeps the later of what was known and at.
func (a *applied) know(partition int, at appliedAt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil {
		a.at = make(map[int]appliedAt)
	}
	if a.at[partition].less(at) {
		a.at[partition] = at
	}
}

// HasApplied reports whether MySQL has applied a partition up to an
// entry. It uses the last Signal, if Redis still has the entry at that
// offset. Errors: those of Redis.
func HasApplied(ctx context.Context, rdb redis.UniversalClient, partition int, upto EntryID) (bool, error) {
	signal, err := rdb.HGet(ctx, SignalsKey(partition), signalOffset).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	at, entry, known := offsetOf(signal)
	if err != nil || !known || entry.Less(upto) {
		return false, err
	}
	found, err := rdb.XRangeN(ctx, StreamKey(partition), at.EntryID, at.EntryID, 1).Result()
	return err == nil && IsEntry(found, at), err
}

func signalOf(at event.Offset) string {
	return strconv.FormatInt(at.Generation, 10) + " " + at.EntryID + " " + at.EventID
}

func offsetOf(signal string) (at event.Offset, entry EntryID, known bool) {
	parts := strings.SplitN(signal, " ", 3)
	if len(parts) < 3 {
		return at, entry, false
	}
	generation, err := strconv.ParseInt(parts[0], 10, 64)
	entry, malformed := ParseEntryID(parts[1])
	return event.Offset{Generation: generation, EntryID: parts[1], EventID: parts[2]}, entry, err == nil && malformed == nil
}

func (a *applied) hear(partition int, signal string) {
	if at, entry, known := offsetOf(signal); known {
		a.know(partition, appliedAt{at.Generation, entry})
	}
}
