package consumer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/consumer"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// An event is delivered once MySQL has applied it. The signal for an
// entry that Redis has lost since proves nothing.
func TestService_HandsOutWhatMySQLHas(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	scripts, err := lua.New(rdb, lua.Options{Partitions: 2})
	require.NoError(t, err)
	books := &ledger{}
	s := startService(t, rdb, func(cfg *consumer.Config) {
		cfg.Handle = books.handle
		cfg.ReadAhead = false
	})
	for n := range 3 {
		s.claim(t, 0, n)
	}
	entries, err := rdb.XRange(t.Context(), lua.StreamKey(0), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 3)
	isApplied := consumer.IsApplied(rdb)
	for _, told := range []struct {
		entry int
		event string
		is    bool
	}{
		{1, lua.EventIDOf(&entries[1]), false},
		{2, "an event that redis has lost", false},
		{2, lua.EventIDOf(&entries[2]), true},
	} {
		require.False(t, isApplied(t.Context(), lua.StreamKey(0), entries[2].ID))
		require.Zero(t, books.count())
		require.NoError(t, scripts.Signal(t.Context(), map[int]models.Offset{0: {EntryID: entries[told.entry].ID, EventID: told.event}}))
		require.Equal(t, told.is, isApplied(t.Context(), lua.StreamKey(0), entries[2].ID))
	}
	require.Eventually(t, func() bool { return books.count() == 3 }, patience, time.Millisecond)
}
