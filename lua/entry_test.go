package lua_test

import (
	"math"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

func TestFirstIsTheOldestThatIsNotAcknowledged(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		const group = models.GroupSyncer
		first := func() lua.EntryID {
			u, err := b.s.Unread(t.Context(), 0, group)
			require.NoError(t, err)
			return u.First()
		}
		require.Zero(t, first(), "no stream")
		for _, user := range []string{"a", "b", "c", "d"} {
			b.claim(want(user, 1, ""))
		}
		require.Zero(t, first(), "no group: it has acknowledged nothing")
		all, err := b.s.Entries(t.Context(), 0, lua.EntryID{}, 10)
		require.NoError(t, err)
		require.Len(t, all, 4)
		for i, user := range []string{"a", "b", "c", "d"} {
			e, err := models.DecodeEvent([]byte(all[i].Payload))
			require.NoError(t, err)
			require.Equal(t, user, e.UserID)
		}

		require.NoError(t, rdb.XGroupCreate(t.Context(), b.keys.Stream, group, "0").Err())
		require.False(t, all[0].ID.Less(first()))
		read := &redis.XReadGroupArgs{Group: group, Consumer: "one", Streams: []string{b.keys.Stream, ">"}, Count: 3, Block: -1}
		require.NoError(t, rdb.XReadGroup(t.Context(), read).Err())
		require.Equal(t, all[0].ID, first())
		ack := func(i int) { require.NoError(t, rdb.XAck(t.Context(), b.keys.Stream, group, all[i].ID.String()).Err()) }
		ack(1)
		require.Equal(t, all[0].ID, first())
		ack(0)
		require.Equal(t, all[2].ID, first())
		ack(2)
		require.Equal(t, all[2].ID.Next(), first())
		require.False(t, all[3].ID.Less(first()), "what was never delivered is not acknowledged")

		page, err := b.s.Entries(t.Context(), 0, first(), 10)
		require.NoError(t, err)
		require.Equal(t, all[3:], page)
		page, err = b.s.Entries(t.Context(), 0, all[1].ID, 2)
		require.NoError(t, err)
		require.Equal(t, all[1:3], page)
	})
}

func TestNextID(t *testing.T) {
	t.Parallel()
	require.Equal(t, lua.EntryID{Ms: 5, Seq: 8}, lua.EntryID{Ms: 5, Seq: 7}.Next())
	require.Equal(t, lua.EntryID{Ms: 6}, lua.EntryID{Ms: 5, Seq: math.MaxUint64}.Next())
}
