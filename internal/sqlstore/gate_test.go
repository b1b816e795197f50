package sqlstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
)

func openShut(t *testing.T, dsn string, check func(context.Context, *gorm.DB) error) (*gorm.DB, *sqlstore.Gate) {
	t.Helper()
	db, gate, err := sqlstore.OpenGated(sqlstore.Config{DSN: dsn, Logger: syncertest.Quiet()}, check)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	return db, gate
}

func one(db *gorm.DB) error {
	var n int
	return db.Raw("SELECT 1").Scan(&n).Error
}

// Otherwise unchecked MySQL could be used after an earlier check failed.
func TestGate_OpensOnceTheCheckHasPassed(t *testing.T) {
	t.Parallel()
	wrong := errors.New("another schema")
	said := wrong
	db, gate := openShut(t, testenv.Database(t).DSN, func(_ context.Context, db *gorm.DB) error { return errors.Join(said, one(db)) })
	require.ErrorIs(t, one(db), sqlstore.ErrUnchecked)
	err := gate.Try(t.Context())
	require.ErrorIs(t, err, wrong)
	require.NotErrorIs(t, err, sqlstore.ErrAway, "its last word")
	require.ErrorIs(t, gate.Await(t.Context(), time.Millisecond, syncertest.Quiet()), wrong)

	said = nil
	require.NoError(t, gate.Try(t.Context()))
	require.NoError(t, one(db))
}

func TestGate_TellsAwayFromNo(t *testing.T) {
	t.Parallel()
	fine := func(context.Context, *gorm.DB) error { return nil }
	_, gate := openShut(t, "root@tcp(127.0.0.1:1)/dibs", fine)
	require.ErrorIs(t, gate.Try(t.Context()), sqlstore.ErrAway)

	stopped, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	require.NoError(t, gate.Await(stopped, time.Millisecond, syncertest.Quiet()), "a process that stops in the meantime stops well")

	dsn := testenv.Database(t).DSN
	for number, isAway := range map[uint16]bool{
		// read-only twice, a lock, a joining node, a full server, a stopping one, a proxy without a server
		1290: true, 1836: true, 1205: true, 1047: true, 1040: true, 1053: true, 9001: true,
		1142: false, 1045: false, 1146: false, // a missing grant, password, table
	} {
		_, gate = openShut(t, dsn, func(context.Context, *gorm.DB) error { return &mysql.MySQLError{Number: number} })
		require.Equal(t, isAway, errors.Is(gate.Try(t.Context()), sqlstore.ErrAway), number)
	}

	tries := 0
	_, gate = openShut(t, dsn, func(context.Context, *gorm.DB) error {
		if tries++; tries < 3 {
			return &mysql.MySQLError{Number: 1040}
		}
		return nil
	})
	require.NoError(t, gate.Await(t.Context(), time.Millisecond, syncertest.Quiet()), "a server that is full takes us later")
	require.Equal(t, 3, tries)

	store := testenv.Database(t)
	_, gate = openShut(t, strings.Replace(store.DSN, store.Name, "no_such_database", 1), fine)
	err := gate.Try(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, sqlstore.ErrAway, "it answered: %v", err)
}

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
