package lua_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models/event"
)

func (b *bundle) read(group string, n int64) {
	b.t.Helper()
	args := &redis.XReadGroupArgs{Group: group, Consumer: "one", Streams: []string{b.keys.Stream, ">"}, Count: n, Block: -1}
	require.NoError(b.t, b.rdb.XReadGroup(b.t.Context(), args).Err())
}

func (b *bundle) ack(group string, ids ...lua.EntryID) {
	b.t.Helper()
	for _, id := range ids {
		require.NoError(b.t, b.rdb.XAck(b.t.Context(), b.keys.Stream, group, id.String()).Err())
	}
}

func (b *bundle) entries() (ids []lua.EntryID) {
	b.t.Helper()
	all, err := b.s.Entries(b.t.Context(), 0, lua.EntryID{}, 1000)
	require.NoError(b.t, err)
	for i := range all {
		ids = append(ids, all[i].ID)
	}
	return ids
}

func TestUptoCountsThePendingEntryAtTheTip(t *testing.T) {
	t.Parallel()
	tip, before, after := lua.EntryID{Ms: 5, Seq: 1}, lua.EntryID{Ms: 5}, lua.EntryID{Ms: 5, Seq: 2}
	for _, row := range []struct {
		name string
		u    lua.Unread
		upto bool
	}{
		{"the tip is pending", lua.Unread{Delivered: tip, Oldest: tip, Pending: 1}, false},
		{"one after the tip is pending", lua.Unread{Delivered: after, Oldest: after, Pending: 1}, true},
		{"nothing is pending", lua.Unread{Delivered: tip}, true},
		{"the tip was not delivered", lua.Unread{Delivered: before}, false},
		{"no group", lua.Unread{NoGroup: true}, false},
	} {
		require.Equal(t, row.upto, row.u.Upto(tip), row.name)
	}
	require.True(t, new(lua.Unread{NoGroup: true}).Upto(lua.EntryID{}), "an empty stream holds nothing to acknowledge")
}

func TestGroupsAreAsFarAsTheyAcknowledged(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		none, err := b.s.Groups(t.Context(), 0)
		require.NoError(t, err)
		require.Empty(t, none, "no stream")
		for _, group := range []string{"slow", "fast"} {
			require.NoError(t, b.s.NewGroup(t.Context(), 0, group))
		}
		b.claim(wants("u", 4)...)
		ids := b.entries()
		require.Len(t, ids, 4)
		b.read("fast", 4)
		b.read("slow", 2)
		b.ack("fast", ids...)
		b.ack("slow", ids[0])
		require.NoError(t, b.s.NewGroup(t.Context(), 0, "slow"), "it is there and stays where it is")

		groups, err := b.s.Groups(t.Context(), 0)
		require.NoError(t, err)
		byName := map[string]lua.Group{}
		for _, g := range groups {
			byName[g.Name] = g
			alone, err := b.s.Unread(t.Context(), 0, g.Name)
			require.NoError(t, err)
			require.Equal(t, g.Unread, alone)
		}
		require.Equal(t, lua.Unread{Delivered: ids[3]}, byName["fast"].Unread)
		require.Equal(t, lua.Unread{Delivered: ids[1], Oldest: ids[1], Pending: 1}, byName["slow"].Unread)
		fast, slow := byName["fast"].Unread, byName["slow"].Unread
		require.Equal(t, []lua.EntryID{ids[3].Next(), ids[1]}, []lua.EntryID{fast.First(), slow.First()})
		page, err := b.s.Entries(t.Context(), 0, slow.First(), 2)
		require.NoError(t, err)
		require.Equal(t, ids[1], page[0].ID)
		require.Equal(t, ids[2], page[1].ID)
		if isReal(t) { // the embedded one counts otherwise
			require.Equal(t, []int64{0, 3}, []int64{byName["fast"].Backlog, byName["slow"].Backlog})
		}
		readers, err := b.s.Consumers(t.Context(), 0, "slow")
		require.NoError(t, err)
		require.Len(t, readers, 1)
		require.Equal(t, "one", readers[0].Name)
		require.EqualValues(t, 1, readers[0].Pending)
	})
}

func TestTrimBelowLeavesTheEntryAndThoseAfterIt(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		for range 300 {
			require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: b.keys.Stream, Values: []string{"payload", "{}"}}).Err())
		}
		ids := b.entries()
		n, err := b.s.TrimBelow(t.Context(), 0, ids[250], ids[len(ids)-1].Next(), 1000)
		require.NoError(t, err)
		require.Zero(t, n, "Redis lacks what MySQL has applied last")
		if isReal(t) { // the embedded one trims to the entry
			n, err = b.s.TrimBelow(t.Context(), 0, ids[50], ids[len(ids)-1], 1000)
			require.NoError(t, err)
			require.Zero(t, n, "the first node is needed")
			require.Empty(t, rdb.Get(t.Context(), lua.TrimmedKey(0)).Val(), "nothing is gone")
		}
		n, err = b.s.TrimBelow(t.Context(), 0, ids[250], ids[len(ids)-1], 1000)
		require.NoError(t, err)
		left := b.entries()
		require.Equal(t, ids[n:], left)
		require.GreaterOrEqual(t, n, int64(200), "all whole nodes before it")
		require.LessOrEqual(t, n, int64(250))
		stream, err := b.s.Stream(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, int64(len(left)), stream.Length)
		require.Equal(t, ids[299], stream.Tip)

		noted := rdb.Get(t.Context(), lua.TrimmedKey(0)).Val()
		n, err = b.s.TrimBelow(t.Context(), 0, ids[240], ids[len(ids)-1], 1000)
		require.NoError(t, err)
		require.Zero(t, n, "a process that was held up")
		require.Equal(t, noted, rdb.Get(t.Context(), lua.TrimmedKey(0)).Val(), "does not take back what another one noted")
	})
}

// A signal changes with the offset, by entry and
// by event: Redis may give an entry id again.
func TestSignals_ChangeWithTheOffset(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		s, err := lua.New(rdb, lua.Options{Partitions: 3})
		require.NoError(t, err)
		require.Equal(t, []string{"", ""}, s.Signaled(t.Context(), []int{0, 2}))
		require.NoError(t, s.Signal(t.Context(), map[int]event.Offset{0: {EntryID: "1-0", EventID: "a"}, 1: {EntryID: "9-0"}}))
		one := s.Signaled(t.Context(), []int{0, 2})
		require.NotEmpty(t, one[0])
		require.Empty(t, one[1])
		require.NoError(t, s.Signal(t.Context(), map[int]event.Offset{0: {EntryID: "1-0", EventID: "b"}}))
		require.NotEqual(t, one, s.Signaled(t.Context(), []int{0, 2}))
	})
}
