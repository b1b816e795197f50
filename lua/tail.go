package lua

import (
	"context"
	"math"
)

// Entry is an entry of a claim stream, as it came: nobody has checked its payload.
type Entry struct {
	ID      EntryID
	Payload string // "" when the entry has none
}

// Next is the id right after id.
func (id EntryID) Next() EntryID {
	if id.Seq == math.MaxUint64 {
		return EntryID{Ms: id.Ms + 1}
	}
	return EntryID{Ms: id.Ms, Seq: id.Seq + 1}
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

// Entries reads up to most entries of a partition's stream, from the one at from on. Errors as Stream.
func (s *Scripts) Entries(ctx context.Context, partition int, from EntryID, most int) ([]Entry, error) {
	messages, err := s.rdb.XRangeN(ctx, StreamKey(partition), from.String(), "+", int64(most)).Result()
	if err != nil {
		return nil, sortError("xrange", err)
	}
	entries := make([]Entry, len(messages))
	for i := range messages {
		if entries[i].ID, err = ParseEntryID(messages[i].ID); err != nil {
			return nil, err
		}
		entries[i].Payload, _ = messages[i].Values["payload"].(string)
	}
	return entries, nil
}
