package sqlstore_test

import (
	"context"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func exec(ctx context.Context, tx *gorm.DB, query string) error {
	_, err := sqlstore.Exec(ctx, tx, query)
	return err
}

func totalOf(t *testing.T, db *gorm.DB) (total int64) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT total FROM campaigns").Scan(&total).Error)
	return total
}

// Otherwise reads of one snapshot could contradict each other.
func TestInSnapshot_SeesOneMoment(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	syncertest.AddCampaign(t, db, "c", 1)
	var first, second int64
	require.NoError(t, sqlstore.InSnapshot(t.Context(), db, func(tx *gorm.DB) error {
		read := "SELECT total FROM campaigns"
		require.NoError(t, tx.Raw(read).Row().Scan(&first))
		require.NoError(t, db.Exec("UPDATE lots SET total = 2").Error)
		return tx.Raw(read).Row().Scan(&second)
	}))
	require.Equal(t, []int64{1, 1, 2}, []int64{first, second, totalOf(t, db)})

	err := sqlstore.InSnapshot(t.Context(), db, func(tx *gorm.DB) error { return exec(t.Context(), tx, "UPDATE lots SET total = 3") })
	require.ErrorContains(t, err, "1792", "read-only")
}

func TestInTxBrief_WaitsASecondForALockAndLeavesTheConnectionAsItWas(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: testenv.Database(t).DSN, Conns: 2})
	syncertest.AddCampaign(t, db, "c", 1)
	stranger := db.Begin()
	require.NoError(t, stranger.Exec("UPDATE lots SET total = 2").Error)
	started := time.Now()
	err := sqlstore.InTxBrief(t.Context(), db, func(tx *gorm.DB) error { return exec(t.Context(), tx, "UPDATE lots SET total = 3") })
	require.True(t, sqlstore.IsLockWait(err), "%v", err)
	require.Less(t, time.Since(started), 8*time.Second)
	var wait int
	// on the one free connection
	require.NoError(t, db.Raw("SELECT @@innodb_lock_wait_timeout").Scan(&wait).Error)
	require.Equal(t, 10, wait)
	require.NoError(t, stranger.Commit().Error)
	require.NoError(t, sqlstore.InTxBrief(t.Context(), db, func(tx *gorm.DB) error { return exec(t.Context(), tx, "UPDATE lots SET total = 3") }))
	require.EqualValues(t, 3, totalOf(t, db))
}
