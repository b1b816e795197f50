package testenv

import (
	"path/filepath"
	"testing"
)

// Store is a database: of the SQL server, by DSN, or a file of
// the embedded SQLite, by path.
type Store struct{ DSN, Path string }

// String returns the one that is set.
func (s Store) String() string { return s.DSN + s.Path }

// OnEachStore runs a test on the SQL server and on the embedded
// SQLite, both empty.
func OnEachStore(t *testing.T, test func(t *testing.T, store Store)) {
	t.Helper()
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		test(t, Store{DSN: Database(t).DSN})
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		// a name that must be escaped in a URL
		test(t, Store{Path: filepath.Join(t.TempDir(), "dibs 100%?.db")})
	})
}
