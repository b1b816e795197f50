package syncertest

import (
	"testing"

	"dibs/internal/testkit/testenv"
	"dibs/lua"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Stream is a claim stream in its own Redis.
type Stream struct {
	T     *testing.T
	Redis *redis.Client
	Key   string
	IDs   []string
}

// NewStream starts a Redis with an empty claim stream.
func NewStream(t *testing.T) *Stream {
	t.Helper()
	return &Stream{T: t, Redis: testenv.Redis(t).Client(), Key: lua.StreamKey(0)}
}

// Add adds n entries.
func (s *Stream) Add(n int) {
	s.T.Helper()
	for range n {
		id, err := s.Redis.XAdd(s.T.Context(), &redis.XAddArgs{Stream: s.Key, Values: []string{"payload", "{}"}}).Result()
		require.NoError(s.T, err)
		s.IDs = append(s.IDs, id)
	}
}

// Read reads up to n new entries for a group, and returns their ids.
func (s *Stream) Read(group string, n int64) []string {
	s.T.Helper()
	got, err := s.Redis.XReadGroup(s.T.Context(), &redis.XReadGroupArgs{
		Group: group, Consumer: "c", Streams: []string{s.Key, ">"}, Count: n, Block: -1,
	}).Result()
	require.NoError(s.T, err)
	var ids []string
	for _, m := range got[0].Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// Ack acknowledges entries.
func (s *Stream) Ack(group string, ids ...string) {
	s.T.Helper()
	require.NoError(s.T, s.Redis.XAck(s.T.Context(), s.Key, group, ids...).Err())
}

// Left returns the index in IDs of the first remaining entry,
// and how many remain.
func (s *Stream) Left() (first, n int) {
	s.T.Helper()
	entries, err := s.Redis.XRange(s.T.Context(), s.Key, "-", "+").Result()
	require.NoError(s.T, err)
	if len(entries) == 0 {
		return len(s.IDs), 0
	}
	for i, id := range s.IDs {
		if id == entries[0].ID {
			return i, len(entries)
		}
	}
	s.T.Fatalf("entry %s is none of ours", entries[0].ID)
	return 0, 0
}

// Died is panicked with to abort a load at a step.
type Died struct{}
