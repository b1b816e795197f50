package lua

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// EntryID is the id of an entry of a stream.
type EntryID struct{ Ms, Seq uint64 }

// Less tells whether id came before o.
func (id EntryID) Less(o EntryID) bool { return id.Ms < o.Ms || id.Ms == o.Ms && id.Seq < o.Seq }

// String is the id as Redis writes it.
func (id EntryID) String() string {
	return strconv.FormatUint(id.Ms, 10) + "-" + strconv.FormatUint(id.Seq, 10)
}

// ParseEntryID reads an id as Redis writes it; nothing is the zero id.
func ParseEntryID(text string) (EntryID, error) {
	if text == "" {
		return EntryID{}, nil
	}
	msText, seqText, whole := strings.Cut(text, "-")
	if !whole {
		seqText = "0" // the embedded Redis shortens 0-0
	}
	ms, msErr := strconv.ParseUint(msText, 10, 64)
	seq, seqErr := strconv.ParseUint(seqText, 10, 64)
	if err := errors.Join(msErr, seqErr); err != nil {
		return EntryID{}, fmt.Errorf("lua: entry id %.40q: %w", text, err)
	}
	return EntryID{ms, seq}, nil
}

// Stream is the claim stream of a partition at one moment.
type Stream struct {
	Generation string  // names this unbroken life of the stream; "" when Redis holds none
	Tip        EntryID // the highest id that was ever in it; zero when there is no stream
}

// Stream reads the generation and the tip of a partition's stream. Errors: ErrUnavailable, ErrOutcomeUnknown (a read: ask again),
// ErrDamaged.
func (s *Scripts) Stream(ctx context.Context, partition int) (Stream, error) {
	generation, err := s.rdb.Get(ctx, GenerationKey(partition)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Stream{}, sortError("get", err)
	}
	info, err := s.rdb.XInfoStream(ctx, StreamKey(partition)).Result()
	switch {
	case err != nil && strings.Contains(err.Error(), noSuchKey):
		return Stream{Generation: generation}, nil
	case err != nil:
		return Stream{}, sortError("xinfo", err)
	}
	tip, err := ParseEntryID(info.LastGeneratedID)
	if err != nil {
		return Stream{}, fmt.Errorf("%w: %s: %w", ErrDamaged, StreamKey(partition), err)
	}
	if tip.Ms == math.MaxUint64 {
		return Stream{}, fmt.Errorf("%w: %s: its last id is %s, and no claim can have one behind it. Such an id comes from an XADD by hand. "+
			"When every group has read the stream, RENAME it and run dibs reconcile --repair", ErrDamaged, StreamKey(partition), tip)
	}
	return Stream{Generation: generation, Tip: tip}, nil
}

const noSuchKey = "no such key"

// NewGeneration gives a partition's stream a generation where it has none, and returns the one that it has then.
func (s *Scripts) NewGeneration(ctx context.Context, partition int) (string, error) {
	fresh, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("lua: stream generation: %w", err)
	}
	if err := s.rdb.SetNX(ctx, GenerationKey(partition), fresh.String(), 0).Err(); err != nil {
		return "", sortError("set", err)
	}
	generation, err := s.rdb.Get(ctx, GenerationKey(partition)).Result()
	if err != nil {
		return "", sortError("get", err)
	}
	return generation, nil
}

// SetGeneration replaces the generation of a partition's stream. The caller holds its lock, see LockGeneration.
func (s *Scripts) SetGeneration(ctx context.Context, partition int, generation string) error {
	if err := s.rdb.Set(ctx, GenerationKey(partition), generation, 0).Err(); err != nil {
		return sortError("set", err)
	}
	return nil
}

// LockGeneration takes the lock of those who replace the generation of a partition's stream. Errors as LockCampaign.
func (s *Scripts) LockGeneration(ctx context.Context, partition int, ttl time.Duration) (*Lock, error) {
	return s.obtain(ctx, GenerationLockKey(partition), ttl)
}

// Unread is what a group of a stream has not acknowledged yet.
type Unread struct {
	Delivered EntryID // the last entry that was handed to a reader
	Oldest    EntryID // the oldest that was and is not acknowledged; zero is none
	Pending   int64   // how many such there are
	NoGroup   bool    // there is no such group, or no stream
}

// Upto tells whether everything up to an entry is acknowledged.
func (u *Unread) Upto(id EntryID) bool {
	if u.NoGroup || u.Delivered.Less(id) {
		return id == EntryID{}
	}
	return u.Pending == 0 || id.Less(u.Oldest)
}

// Unread reads how far a group is with a partition's stream. Errors as Stream.
func (s *Scripts) Unread(ctx context.Context, partition int, group string) (Unread, error) {
	groups, err := s.rdb.XInfoGroups(ctx, StreamKey(partition)).Result()
	switch {
	case err != nil && strings.Contains(err.Error(), noSuchKey):
		return Unread{NoGroup: true}, nil
	case err != nil:
		return Unread{}, sortError("xinfo", err)
	}
	for i := range groups {
		if groups[i].Name == group {
			return s.pending(ctx, partition, &groups[i])
		}
	}
	return Unread{NoGroup: true}, nil
}

// pending is read after the group's position: what is delivered meanwhile is later than that.
func (s *Scripts) pending(ctx context.Context, partition int, g *redis.XInfoGroup) (Unread, error) {
	delivered, err := ParseEntryID(g.LastDeliveredID)
	if err != nil {
		return Unread{}, fmt.Errorf("%w: %s: %w", ErrDamaged, StreamKey(partition), err)
	}
	summary, err := s.rdb.XPending(ctx, StreamKey(partition), g.Name).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Unread{}, sortError("xpending", err)
	}
	u := Unread{Delivered: delivered}
	if summary != nil && summary.Count > 0 {
		if u.Oldest, err = ParseEntryID(summary.Lower); err != nil {
			return Unread{}, fmt.Errorf("%w: %s: %w", ErrDamaged, StreamKey(partition), err)
		}
		u.Pending = summary.Count
	}
	return u, nil
}
