package testenv_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func mustExec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

func tables(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	const q = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
	require.NoError(t, db.QueryRowContext(t.Context(), q).Scan(&n))
	return n
}

func TestTwoDatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	one, two := testenv.Database(t), testenv.Database(t)
	require.NotEqual(t, one.Name, two.Name)
	require.Contains(t, []string{testenv.FlavorMariaDB, testenv.FlavorMySQL}, one.Flavor)
	a, b := open(t, one.DSN), open(t, two.DSN)
	mustExec(t, a, "CREATE TABLE x (id INT PRIMARY KEY)")
	require.Equal(t, 1, tables(t, a))
	require.Equal(t, 0, tables(t, b))
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	var gone string
	t.Run("owner", func(t *testing.T) { gone = testenv.Database(t).DSN })
	var unknown *mysql.MySQLError
	require.ErrorAs(t, open(t, gone).PingContext(t.Context()), &unknown)
	require.EqualValues(t, 1049, unknown.Number, "unknown database")
}

func TestDatabaseGivesTimesInUTC(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.Database(t).DSN)
	at := time.Date(2026, 3, 8, 7, 0, 0, 123e6, time.UTC)
	mustExec(t, db, "CREATE TABLE x (at DATETIME(3))")
	_, err := db.ExecContext(t.Context(), "INSERT INTO x VALUES (?)", at)
	require.NoError(t, err)
	var got time.Time
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT at FROM x").Scan(&got))
	require.Equal(t, at, got)
}

func TestKilledSQLServerKeepsWhatItCommitted(t *testing.T) {
	t.Parallel()
	s := testenv.SQLServer(t)
	db := open(t, s.DSN("books"))
	mustExec(t, db, "CREATE TABLE x (id INT PRIMARY KEY) ENGINE=InnoDB")
	mustExec(t, db, "INSERT INTO x VALUES (1),(2)")

	s.Kill()
	require.Error(t, db.PingContext(t.Context()))
	s.Start()

	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM x").Scan(&n))
	require.Equal(t, 2, n)
}

func TestPausedSQLServerAnswersAfterResume(t *testing.T) {
	t.Parallel()
	s := testenv.SQLServer(t, "--max-connections=20")
	db := open(t, s.DSN(""))
	var name, limit string
	require.NoError(t, db.QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'max_connections'").Scan(&name, &limit))
	require.Equal(t, "20", limit)

	s.Pause()
	require.Eventually(t, func() bool { // a thread may finish what it is about
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return errors.Is(db.PingContext(ctx), context.DeadlineExceeded)
	}, time.Minute, time.Millisecond)
	s.Resume()
	require.NoError(t, db.PingContext(t.Context()))
	s.Stop()
	require.Error(t, db.PingContext(t.Context()))
}
