package bench_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// store is a migrated, empty database on a SQL server.
type store struct {
	name string // of the kind of server
	dsn  string
	gorm *gorm.DB
	sql  *sql.DB
	pid  int // of the server; 0 if it is no local process
}

// stores are the servers to measure on: one started here, and
// that of DIBS_TEST_MYSQL_DSN, if any.
func stores(b *testing.B) []*store {
	b.Helper()
	// Its pool holds a round's rows, like a production server's.
	own := testenv.SQLServer(b, "--innodb-buffer-pool-size=512M")
	logOnDisk(b, own)
	all := []*store{newStore(b, own.DSN("bench"))}
	if os.Getenv("DIBS_TEST_MYSQL_DSN") != "" {
		all = append(all, newStore(b, testenv.Database(b).DSN))
	}
	return all
}

// logOnDisk moves a server's redo log to the disk: test servers are in
// memory, where syncing is free, unlike in production. Where it can't
// (MySQL's log is a folder, a container's is out of reach), the log stays.
func logOnDisk(b *testing.B, server *testenv.MySQLServer) {
	b.Helper()
	db, err := sql.Open("mysql", server.DSN(""))
	require.NoError(b, err)
	defer func() { _ = db.Close() }()
	var folder string
	require.NoError(b, db.QueryRowContext(b.Context(), "SELECT @@datadir").Scan(&folder))
	log := filepath.Join(folder, "ib_logfile0")
	server.Stop()
	defer server.Start()
	bytes, err := os.ReadFile(log)
	if err != nil {
		return
	}
	moved := filepath.Join(b.TempDir(), "ib_logfile0")
	require.NoError(b, os.WriteFile(moved, bytes, 0o600))
	require.NoError(b, os.Remove(log))
	require.NoError(b, os.Symlink(moved, log))
}

func newStore(b *testing.B, dsn string) *store {
	b.Helper()
	db := syncertest.OpenStore(b, sqlstore.Config{DSN: dsn})
	pool, err := db.DB()
	require.NoError(b, err)
	return &store{name: "MySQL", dsn: dsn, gorm: db, sql: pool, pid: pidOf(b, pool)}
}

// pidOf reads the server's pid file, if accessible.
func pidOf(b *testing.B, db *sql.DB) int {
	b.Helper()
	var file string
	require.NoError(b, db.QueryRowContext(b.Context(), "SELECT @@pid_file").Scan(&file))
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(b, err)
	return pid
}

// version names the server, and remembers its kind.
func (s *store) version(b *testing.B) string {
	b.Helper()
	var version string
	require.NoError(b, s.sql.QueryRowContext(b.Context(), "SELECT VERSION()").Scan(&version))
	version, _, _ = strings.Cut(version, "-")
	var comment string
	require.NoError(b, s.sql.QueryRowContext(b.Context(), "SELECT CONCAT(@@version, @@version_comment)").Scan(&comment))
	if strings.Contains(comment, "MariaDB") || strings.Contains(comment, "mariadb") {
		s.name = "MariaDB"
	}
	return s.name + " " + version
}

// empty removes all claims and adds a campaign with plenty of stock.
func (s *store) empty(b *testing.B, m lua.Meta) {
	b.Helper()
	for _, table := range []string{"claims", "claim_orders", "stock_flushes", "lots", "definitions", "streams", "stream_positions"} {
		s.exec(b.Context(), b, "TRUNCATE TABLE "+table)
	}
	syncertest.AddCampaigns(b, s.gorm, models.Campaign{
		ID: m.ID, Kind: m.Kind, Status: models.StatusOpen, Total: plenty, TimeZone: "UTC", Version: 1,
	})
	s.exec(b.Context(), b, "UPDATE lots SET epoch = 1")
}

func (s *store) exec(ctx context.Context, b *testing.B, statement string) {
	b.Helper()
	_, err := s.sql.ExecContext(ctx, statement)
	require.NoError(b, err)
}

// requireBooked requires that a campaign's counters and rows
// have the same number of claims of one unit.
func (s *store) requireBooked(b *testing.B, m lua.Meta, claims int64) {
	b.Helper()
	var rows, claimed int64
	require.NoError(b, s.sql.QueryRowContext(b.Context(), "SELECT COUNT(*) FROM claims WHERE campaign_id = ?", m.ID).Scan(&rows))
	require.NoError(b, s.sql.QueryRowContext(b.Context(), "SELECT claimed FROM campaigns WHERE id = ?", m.ID).Scan(&claimed))
	require.Equal(b, claims, rows)
	require.Equal(b, claims, claimed)
}
