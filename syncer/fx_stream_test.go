package syncer_test

import (
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// stream is a claim stream on a Redis of its own, with entries that groups read.
type stream struct {
	t   *testing.T
	rdb *redis.Client
	key string
	ids []string
}

func newStream(t *testing.T) *stream {
	t.Helper()
	return &stream{t: t, rdb: testenv.Redis(t).Client(), key: lua.StreamKey(0)}
}

func (s *stream) add(n int) {
	s.t.Helper()
	for range n {
		id, err := s.rdb.XAdd(s.t.Context(), &redis.XAddArgs{Stream: s.key, Values: []string{"payload", "{}"}}).Result()
		require.NoError(s.t, err)
		s.ids = append(s.ids, id)
	}
}

func (s *stream) read(group string, n int64) []string {
	s.t.Helper()
	got, err := s.rdb.XReadGroup(s.t.Context(), &redis.XReadGroupArgs{
		Group: group, Consumer: "c", Streams: []string{s.key, ">"}, Count: n, Block: -1,
	}).Result()
	require.NoError(s.t, err)
	var ids []string
	for _, m := range got[0].Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

func (s *stream) ack(group string, ids ...string) {
	s.t.Helper()
	require.NoError(s.t, s.rdb.XAck(s.t.Context(), s.key, group, ids...).Err())
}

// left are the entries that are there, by their place in ids.
func (s *stream) left() (first, n int) {
	s.t.Helper()
	entries, err := s.rdb.XRange(s.t.Context(), s.key, "-", "+").Result()
	require.NoError(s.t, err)
	if len(entries) == 0 {
		return len(s.ids), 0
	}
	for i, id := range s.ids {
		if id == entries[0].ID {
			return i, len(entries)
		}
	}
	s.t.Fatalf("entry %s is none of ours", entries[0].ID)
	return 0, 0
}

// died is what a step throws to stop a hydration in its tracks.
type died struct{}

func eachAtOnce(b *testing.B, n int, events []models.Event, do func(e *models.Event) error) {
	b.Helper()
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(events)); i = next.Add(1) - 1 {
				if do(&events[i]) != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(b, failed.Load())
}
