package sqlstore_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// connections opens n connections at once and returns their ids.
func connections(t *testing.T, db *gorm.DB, n int) map[int64]bool {
	t.Helper()
	pool, err := db.DB()
	require.NoError(t, err)
	ids, conns := map[int64]bool{}, make([]*sql.Conn, n)
	for i := range conns {
		conns[i], err = pool.Conn(t.Context())
		require.NoError(t, err)
		var id int64
		require.NoError(t, conns[i].QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		ids[id] = true
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	return ids
}

func TestOpen_AReadOnlyServerIsQuotedAndEveryConnectionToItIsLeft(t *testing.T) {
	t.Parallel()
	server := testenv.SQLServer(t)
	root := syncertest.OpenStore(t, sqlstore.Config{DSN: server.DSN("dibs")})
	syncertest.AddCampaign(t, root, "c", 1)
	require.NoError(t, root.Exec("CREATE USER app@'%' IDENTIFIED BY 'p'").Error)
	require.NoError(t, root.Exec("GRANT ALL ON dibs.* TO app@'%'").Error)
	// root could write all the same
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: strings.Replace(server.DSN("dibs"), "root@", "app:p@", 1)})
	change := func(query string) error {
		return db.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error { return exec(context.Background(), tx, query) })
	}
	require.NoError(t, change("UPDATE lots SET total = 2"))
	before := connections(t, db, 5)

	require.NoError(t, root.Exec("SET GLOBAL read_only = 1").Error)
	err := change("UPDATE lots SET total = 3")
	require.ErrorContains(t, err, "read-only option", "the server's own words")
	require.Equal(t, sqlstore.FailureTransient, sqlstore.FailureOf(err))
	for id := range connections(t, db, 5) {
		require.False(t, before[id], "a connection to the old primary is used again")
	}

	require.NoError(t, root.Exec("SET GLOBAL read_only = 0").Error)
	require.NoError(t, change("UPDATE lots SET total = 4"))
	require.EqualValues(t, 4, totalOf(t, db))
	kept := connections(t, db, 1)
	require.Equal(t, kept, connections(t, db, 1), "connections are used again")
}
