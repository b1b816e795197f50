package process

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/config"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
)

// A process whose reads come from a lagging replica must end at its start.
func TestAStoreWhoseReadsLagIsRefused(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t).DSN
	syncertest.OpenStore(t, sqlstore.Config{DSN: dsn})
	db, lag, _ := syncertest.StaleReads(t, dsn)
	s := &Stack{Options: Options{Config: &config.Config{Partitions: 1}}}
	require.NoError(t, s.checkStore(t.Context(), db))
	lag()
	err := s.checkStore(t.Context(), db)
	require.ErrorIs(t, err, sqlstore.ErrStaleReads)
	require.ErrorContains(t, err, "DIBS_MYSQL_DSN: ")
	require.ErrorIs(t, err, config.ErrConfig)
}
