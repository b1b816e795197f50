package residency_test

import (
	"testing"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/syncer/residency"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
)

// A campaign is not loaded without claims that were cut off on their way from the database.
func TestEachClaim_FailsWhenRowsAreCutOff(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t).DSN
	whole := syncertest.OpenStore(t, sqlstore.Config{DSN: dsn})
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: dsn, Conns: 1})
	syncertest.AddCampaign(t, whole, "c", 100)
	w := syncertest.StartWriter(t, writer.Config{DB: whole})
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, syncertest.ClaimsOf("c", 1, 20)))
	for most, want := range map[int]error{1: sqlstore.ErrShort, 19: sqlstore.ErrShort, 20: nil} {
		require.NoError(t, db.Exec("SET SESSION sql_select_limit = ?", most).Error)
		read := 0
		err := sqlstore.InSnapshot(t.Context(), db, func(tx *sqlstore.Tx) error {
			return residency.EachClaim(t.Context(), tx, "c", nil, func(*lua.ClaimRecord) error { read++; return nil })
		})
		require.ErrorIs(t, err, want)
		require.Equal(t, most, read)
	}
}
