package lua

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Unread is what a group has not acknowledged yet.
type Unread struct {
	Delivered EntryID // the last entry delivered to a reader
	Oldest    EntryID // the oldest pending entry; zero is none
	Pending   int64   // entries delivered and not acknowledged
	NoGroup   bool    // there is no such group, or no stream
}

// Upto reports whether every entry up to id, and id itself, is acknowledged.
func (u *Unread) Upto(id EntryID) bool {
	if u.NoGroup || u.Delivered.Less(id) {
		return id == EntryID{}
	}
	return u.Pending == 0 || id.Less(u.Oldest)
}

// First returns the id before which every entry is acknowledged.
func (u *Unread) First() EntryID {
	switch {
	case u.NoGroup:
		return EntryID{}
	case u.Pending > 0:
		return u.Oldest
	default:
		return u.Delivered.Next()
	}
}

// Group is a consumer group of a partition's stream.
type Group struct {
	Name string
	Unread

	Backlog int64 // unacknowledged entries; below 0: unknown
}

// Groups reads the groups of a partition's stream, if any. Errors as Stream.
func (s *Scripts) Groups(ctx context.Context, partition int) ([]Group, error) {
	infos, err := s.groupInfos(ctx, partition)
	if err != nil {
		return nil, err
	}
	groups := make([]Group, len(infos))
	for i := range infos {
		unread, err := s.unread(ctx, partition, &infos[i])
		if err != nil {
			return nil, err
		}
		groups[i] = Group{Name: infos[i].Name, Unread: unread, Backlog: infos[i].Lag + infos[i].Pending}
		if infos[i].Lag < 0 {
			groups[i].Backlog = -1
		}
	}
	return groups, nil
}

// Unread reads what a group has not acknowledged. Errors as Stream.
func (s *Scripts) Unread(ctx context.Context, partition int, group string) (Unread, error) {
	infos, err := s.groupInfos(ctx, partition)
	if err != nil {
		return Unread{}, err
	}
	for i := range infos {
		if infos[i].Name == group {
			return s.unread(ctx, partition, &infos[i])
		}
	}
	return Unread{NoGroup: true}, nil
}

func (s *Scripts) groupInfos(ctx context.Context, partition int) ([]redis.XInfoGroup, error) {
	return readGroups(s.rdb.XInfoGroups(ctx, StreamKey(partition)))
}

func readGroups(reply *redis.XInfoGroupsCmd) ([]redis.XInfoGroup, error) {
	infos, err := reply.Result()
	if err != nil && !strings.Contains(err.Error(), noSuchKey) {
		return nil, classifyError("xinfo", err)
	}
	return infos, nil
}

// unread reads the pending entries after the group's
// position, as later deliveries are after it.
func (s *Scripts) unread(ctx context.Context, partition int, info *redis.XInfoGroup) (Unread, error) {
	if info.Pending == 0 {
		return readUnread(partition, info, nil)
	}
	return readUnread(partition, info, s.rdb.XPending(ctx, StreamKey(partition), info.Name))
}

// readUnread uses the pending entries if the
// group had any when its position was read.
func readUnread(partition int, info *redis.XInfoGroup, pending *redis.XPendingCmd) (Unread, error) {
	delivered, err := ParseEntryID(info.LastDeliveredID)
	if err != nil {
		return Unread{}, fmt.Errorf("%w: %s: %w", ErrDamaged, StreamKey(partition), err)
	}
	u := Unread{Delivered: delivered}
	if info.Pending == 0 {
		return u, nil
	}
	summary, err := pending.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Unread{}, classifyError("xpending", err)
	}
	if summary != nil && summary.Count > 0 {
		u.Oldest, err = ParseEntryID(summary.Lower)
		if err != nil {
			return Unread{}, fmt.Errorf("%w: %s: %w", ErrDamaged, StreamKey(partition), err)
		}
		u.Pending = summary.Count
	}
	return u, nil
}

// NewGroup creates a consumer group at the start of a stream, and the stream
// if need be. An existing group stays as it is. Errors as Stream.
func (s *Scripts) NewGroup(ctx context.Context, partition int, group string) error {
	err := s.rdb.XGroupCreateMkStream(ctx, StreamKey(partition), group, "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return classifyError("xgroup", err)
	}
	return nil
}

// DestroyGroup removes a consumer group, if it exists. Errors as Stream.
func (s *Scripts) DestroyGroup(ctx context.Context, partition int, group string) error {
	err := s.rdb.XGroupDestroy(ctx, StreamKey(partition), group).Err()
	isMissing := err != nil && (strings.Contains(err.Error(), "requires the key to exist") ||
		strings.Contains(err.Error(), noSuchKey))
	if err != nil && !isMissing {
		return classifyError("xgroup", err)
	}
	return nil
}

// readNow is how recently a consumer without a
// lease must have received entries to count.
const readNow = 10 * time.Second

// IsRead reports whether a process reads for a group now. It has the
// lease of its name, as Dibs' own do, or received entries within
// readNow. Errors as Stream.
func (s *Scripts) IsRead(ctx context.Context, partition int, group string) (bool, error) {
	consumers, err := s.Consumers(ctx, partition, group)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(consumers, func(c Consumer) bool { return c.Idle < readNow || c.Holds }), nil
}

// RewindGroup makes a group read a partition's stream again from an
// entry on. Errors as Stream.
func (s *Scripts) RewindGroup(ctx context.Context, partition int, group string, from EntryID) error {
	after := "0"
	if from != (EntryID{}) {
		after = from.previous().String()
	}
	return classifyError("xgroup setid", s.rdb.XGroupSetID(ctx, StreamKey(partition), group, after).Err())
}

// Consumer is a reader of a group.
type Consumer struct {
	Name    string
	Pending int64         // entries delivered and not acknowledged
	Idle    time.Duration // since its last entry; before Redis 7.2 without empty reads
	Holds   bool          // it has the lease of its name, as running consumers of Dibs do
}

// Consumers reads the readers of a group, if it exists. Errors as Stream.
func (s *Scripts) Consumers(ctx context.Context, partition int, group string) ([]Consumer, error) {
	infos, err := s.rdb.XInfoConsumers(ctx, StreamKey(partition), group).Result()
	if redis.HasErrorPrefix(err, "NOGROUP") || err != nil && strings.Contains(err.Error(), noSuchKey) {
		return nil, nil
	}
	if err != nil {
		return nil, classifyError("xinfo", err)
	}
	consumers := make([]Consumer, len(infos))
	leases := make([]*redis.IntCmd, len(infos))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range infos {
			leases[i] = p.Exists(ctx, consumerKey(group, infos[i].Name))
		}
		return nil
	})
	if err != nil {
		return nil, classifyError("exists", err)
	}
	for i := range infos {
		consumers[i] = Consumer{Name: infos[i].Name, Pending: infos[i].Pending, Idle: infos[i].Idle}
		consumers[i].Holds = leases[i].Val() == 1
	}
	return consumers, nil
}
