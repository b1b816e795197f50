package lua_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models/event"
)

// After a loss Redis may give lower ids: its clock went back. Until the
// stream is read again, MySQL has the new generation with the old entry.
func TestIsBehind_AnEntryThatRedisLostIsNotExpected(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer func() { require.NoError(t, rdb.Close()) }()
	s, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	for _, step := range []struct {
		at       event.Offset
		isBehind bool
	}{
		{event.Offset{Generation: 1, EntryID: "900-7", State: event.PartitionOK}, false},
		{event.Offset{Generation: 1, EntryID: "900-6", State: event.PartitionOK}, true},
		{event.Offset{Generation: 2, EntryID: "900-7", State: event.PartitionRecovering}, false},
		{event.Offset{Generation: 2, EntryID: event.NoEntry, State: event.PartitionRecovering}, false},
		{event.Offset{Generation: 2, EntryID: "100-1", State: event.PartitionOK}, false},
		{event.Offset{Generation: 2, EntryID: "100-0", State: event.PartitionOK}, true},
		{event.Offset{Generation: 1, EntryID: "900-8", State: event.PartitionOK}, true},
	} {
		isBehind, err := s.IsBehind(0, step.at)
		require.NoError(t, err)
		require.Equal(t, step.isBehind, isBehind, step.at)
	}
}
