package offset_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/syncer/offset"
	"dibs/syncer/writer"
)

// Later entries must not delay a waiter, and it must get an error when
// Redis has less than MySQL.
func TestStreams_WaitForWhatThereWasAtTheCall(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		rdb := testenv.Redis(t).Client()
		applied := offset.NewStreams(db, syncertest.ScriptsOn(t, rdb, 1))
		w := syncertest.StartWriter(t, writer.Config{DB: db})
		_, _, err := w.Begin(t.Context(), 0)
		require.NoError(t, err)
		at := func(id string) {
			t.Helper()
			require.NoError(t, db.Exec("UPDATE streams SET offset_id = ? WHERE partition_no = 0", id).Error)
		}
		add := func(id string) {
			t.Helper()
			require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), ID: id, Values: []string{"payload", "{}"}}).Err())
		}
		require.NoError(t, applied.AwaitApplied(t.Context()), "there is nothing")
		add("5-1")
		brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.Error(t, applied.AwaitApplied(brief), "it says so, or that a server did not answer in time")
		waited := make(chan error, 1)
		go func() { waited <- applied.AwaitApplied(t.Context()) }()
		add("6-1")
		at("6-1") // after the tip of the call, whichever that was
		require.NoError(t, <-waited)
		at("7-1")
		brief, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.Error(t, applied.AwaitApplied(brief), "Redis lost an entry")
	})
}
