package residency_test

import (
	"testing"

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
	var flush string
	require.NoError(t, h.DB.Raw("SELECT MAX(id) FROM stock_flushes").Scan(&flush).Error)
	require.NoError(t, h.Scripts.RecordFlushes(t.Context(), map[int]string{0: flush}))
	stream, err := h.Scripts.Stream(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, h.Scripts.RecordTip(t.Context(), 0, stream.Tip))
	require.NoError(t, h.DB.Exec("UPDATE streams SET tip = ?", stream.Tip.String()).Error)

	for range 3 {
		_, err = behind.Maintainer().Watch(t.Context())
		require.ErrorIs(t, err, sqlstore.ErrStaleReads)
		require.ErrorContains(t, err, "DIBS_MYSQL_DSN must reach the primary for reads, too")
	}
	require.Equal(t, models.ResidencyResident, h.Residency(id))
	require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("w", ""))[0].Outcome)
	reload := h.Create(9, nil) // the replica has neither the campaign nor its load
	require.Error(t, behind.Hydrator().Examine(t.Context(), reload))
	require.Equal(t, models.ResidencyResident, h.Residency(reload))
	catchUp()
	require.Zero(t, watch(&behind))
	require.Equal(t, models.ResidencyResident, h.Residency(id))
}
