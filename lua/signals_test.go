package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// A signal changes with the offset, by entry and
// by event: Redis may give an entry id again.
func TestSignals_ChangeWithTheOffset(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		s, err := lua.New(rdb, lua.Options{Partitions: 3})
		require.NoError(t, err)
		require.Equal(t, []string{"", ""}, s.Signaled(t.Context(), []int{0, 2}))
		require.NoError(t, s.Signal(t.Context(), map[int]models.Offset{0: {EntryID: "1-0", EventID: "a"}, 1: {EntryID: "9-0"}}))
		one := s.Signaled(t.Context(), []int{0, 2})
		require.NotEmpty(t, one[0])
		require.Empty(t, one[1])
		require.NoError(t, s.Signal(t.Context(), map[int]models.Offset{0: {EntryID: "1-0", EventID: "b"}}))
		require.NotEqual(t, one, s.Signaled(t.Context(), []int{0, 2}))
	})
	away, err := lua.New(connect(t, "redis://127.0.0.1:1"), lua.Options{})
	require.NoError(t, err)
	require.Equal(t, []string{""}, away.Signaled(t.Context(), []int{0}))
}

// The event of a claim says that its answer waits for MySQL. So a claim
// that was never answered can be distinguished.
func TestClaimsOfModeMySQLSaySo(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		fast := b.claim(want("fast", 1, ""))
		s, err := lua.New(rdb, lua.Options{
			Clock: func() time.Time { return time.UnixMilli(b.ourMs.Load()) }, ServerClock: b.redisMs.Load, Durability: lua.MySQL,
		})
		require.NoError(t, err)
		b.s = s
		waits := b.claim(want("waits", 1, "key"), want("waits", 1, "key"))
		events := b.events()
		require.Equal(t, []string{"", models.ModeMySQL}, []string{events[0].Mode, events[1].Mode})
		require.Equal(t, []bool{false, true}, []bool{events[0].IsAwaited(), events[1].IsAwaited()})
		require.Equal(t, []int64{1, 1, 0}, []int64{fast[0].Epoch, waits[0].Epoch, waits[1].Epoch}, "a replay says nothing of the load")
		b.requireBooks()
	})
}
