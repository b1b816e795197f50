package sqlstore_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
)

// A false alarm under concurrency would stop healthy processes.
func TestCheckReads_ToldFromAReplicaThatLags(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t).DSN
	syncertest.OpenStore(t, sqlstore.Config{DSN: dsn})
	db, lag, catchUp := syncertest.StaleReads(t, dsn)
	require.NoError(t, sqlstore.CheckReads(t.Context(), db))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				require.NoError(t, sqlstore.CheckReads(t.Context(), db))
			}
		})
	}
	all.Wait()
	lag()
	require.ErrorIs(t, sqlstore.CheckReads(t.Context(), db), sqlstore.ErrStaleReads)
	require.ErrorIs(t, sqlstore.CheckReads(t.Context(), db), sqlstore.ErrStaleReads)
	catchUp()
	require.NoError(t, sqlstore.CheckReads(t.Context(), db))
}

func TestCheckReads_EveryStoreThatIsOneServer(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		for range 3 {
			require.NoError(t, sqlstore.CheckReads(t.Context(), db))
		}
	})
}
