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

// Unread is what a group of a stream has not acknowledged yet.
type Unread struct {
	Delivered EntryID // the last entry that was handed to a reader
	Oldest    EntryID // the oldest entry that was handed out and is not acknowledged; zero is none
	Pending   int64   // how many such entries there are
	NoGroup   bool    // there is no such group, or no stream
}

// Upto reports whether every entry up to id, with id, is acknowledged.
func (u *Unread) Upto(id EntryID) bool {
	if u.NoGroup || u.Delivered.Less(id) {
		return id == EntryID{}
	}
	return u.Pending == 0 || id.Less(u.Oldest)
}

// First is where the entries that the group has not acknowledged begin: every entry before it is acknowledged.
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

	Backlog int64 // entries that the group has not acknowledged; below 0: Redis does not know
}

// Groups reads the groups of a partition's stream, and how far each is. There are none where there is no stream. Errors as Stream.
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

// Unread reads how far a group is with a partition's stream. Errors as Stream.
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

// unread asks for the pending entries after the group's position was read: what is delivered in the meantime is later than that.
func (s *Scripts) unread(ctx context.Context, partition int, info *redis.XInfoGroup) (Unread, error) {
	if info.Pending == 0 {
		return readUnread(partition, info, nil)
	}
	return readUnread(partition, info, s.rdb.XPending(ctx, StreamKey(partition), info.Name))
}

// readUnread takes the pending entries into account if the group had any when its position was read.
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

// NewGroup makes a consumer group that reads a partition's stream from its beginning, and the stream if need be. A group that is
// there stays as it is. Errors as Stream.
func (s *Scripts) NewGroup(ctx context.Context, partition int, group string) error {
	err := s.rdb.XGroupCreateMkStream(ctx, StreamKey(partition), group, "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return classifyError("xgroup", err)
	}
	return nil
}

// DestroyGroup removes a consumer group from a partition's stream. A group that is not there is no error. Errors as Stream.
func (s *Scripts) DestroyGroup(ctx context.Context, partition int, group string) error {
	err := s.rdb.XGroupDestroy(ctx, StreamKey(partition), group).Err()
	if err != nil && !strings.Contains(err.Error(), "requires the key to exist") && !strings.Contains(err.Error(), noSuchKey) {
		return classifyError("xgroup", err)
	}
	return nil
}

// readNow is how recently a consumer without a lease was handed entries if it counts as one that reads.
const readNow = 10 * time.Second

// IsRead reports whether a process reads a partition's stream for a group now: one that holds the lease of its name, as Dibs' own do, or
// that was handed entries within readNow. Errors as Stream.
func (s *Scripts) IsRead(ctx context.Context, partition int, group string) (bool, error) {
	consumers, err := s.Consumers(ctx, partition, group)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(consumers, func(c Consumer) bool { return c.Idle < readNow || c.Holds }), nil
}

// RewindGroup has a group read a partition's stream again, from an entry on. Errors as Stream.
func (s *Scripts) RewindGroup(ctx context.Context, partition int, group string, from EntryID) error {
	after := "0"
	if from != (EntryID{}) {
		after = from.previous().String()
	}
	return classifyError("xgroup setid", s.rdb.XGroupSetID(ctx, StreamKey(partition), group, after).Err())
}

// Consumer is a reader of a group of a partition's stream.
type Consumer struct {
	Name    string
	Pending int64         // entries that it was handed and has not acknowledged
	Idle    time.Duration // since it last received an entry; before Redis 7.2 an empty read does not count
	Holds   bool          // it holds the lease of its name, as each running consumer of Dibs does
}

// Consumers reads the readers of a group. There are none where there is no group. Errors as Stream.
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
	for i := range infos {
		consumers[i] = Consumer{Name: infos[i].Name, Pending: infos[i].Pending, Idle: infos[i].Idle, Holds: leases[i].Val() == 1}
	}
	return consumers, classifyError("exists", err)
}
