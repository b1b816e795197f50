package residency_test

import (
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/models"
)

// Reads that a proxy sends to a replica that lags look like a MySQL that was restored. They are
// told as what they are, and no campaign is taken out of use.
func TestWatch_AReplicaThatLagsIsNoMySQLThatWasRestored(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	config, err := mysql.ParseDSN(testenv.Database(t).DSN)
	require.NoError(t, err)
	require.NoError(t, h.DB.Raw("SELECT DATABASE()").Scan(&config.DBName).Error)
	behind := *h
	var lag, catchUp func()
	behind.DB, lag, catchUp = syncertest.StaleReads(t, config.FormatDSN())
	id := h.Create(9, nil)
	h.Take(id, syncertest.Asks("early", 2)...)
	lag()
	h.Take(id, syncertest.Asks("late", 3)...)
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, time.Millisecond)

	err = behind.Hydrator().Examine(t.Context(), id)
	require.ErrorIs(t, err, sqlstore.ErrStaleReads)
	require.ErrorContains(t, err, "DIBS_MYSQL_DSN must reach the primary for reads, too")
	require.Equal(t, models.ResidencyEvicted, h.Residency(id))
	catchUp()
	require.NoError(t, behind.Hydrator().Examine(t.Context(), id))
	require.NoError(t, h.Hydrate(id))
	h.RequireBooks(id, 5)
}
