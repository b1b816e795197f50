package syncertest

import (
	"strings"
	"sync"
	"testing"

	"dibs/internal/migrations"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// schema has the statements that make a SQL server's schema, with the rows
// that it begins with.
var schema struct { //nolint:gochecknoglobals // of the test binary
	sync.Mutex
	tables, views []string
}

// Migrate gives an empty database of a SQL server the latest schema. The first
// one of a test binary is migrated, the others get a copy: parsing the files
// takes a quarter of a second each time under the race detector.
func Migrate(t testing.TB, db *gorm.DB) {
	t.Helper()
	schema.Lock()
	defer schema.Unlock()
	if schema.tables == nil {
		pool, err := db.DB()
		require.NoError(t, err)
		_, err = migrations.Up(t.Context(), pool, migrations.MySQL)
		require.NoError(t, err)
		readSchema(t, db)
		return
	}
	for _, statement := range schema.tables {
		require.NoError(t, db.Exec(statement).Error, statement)
	}
	for left := schema.views; len(left) > 0; {
		var failed []string // selects from a view that comes later
		for _, statement := range left {
			if db.Exec(statement).Error != nil {
				failed = append(failed, statement)
			}
		}
		require.Less(t, len(failed), len(left), "%v", failed)
		left = failed
	}
}

// readSchema keeps a database's statements for the next ones.
func readSchema(t testing.TB, db *gorm.DB) {
	t.Helper()
	var shows, rows []string
	require.NoError(t, db.Raw("SELECT CONCAT('SHOW CREATE ', IF(table_type = 'VIEW', 'VIEW ', 'TABLE '), table_name)"+
		" FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&shows).Error)
	require.NoError(t, db.Raw("SELECT CONCAT('INSERT INTO goose_db_version (version_id, is_applied) VALUES (', version_id, ', 1)')"+
		" FROM goose_db_version UNION ALL SELECT CONCAT('INSERT INTO settings (name, value) VALUES (', QUOTE(name), ', ', QUOTE(value), ')')"+
		" FROM settings").Scan(&rows).Error)
	for _, show := range shows {
		var name, text, unused string
		if strings.Contains(show, " VIEW ") {
			require.NoError(t, db.Raw(show).Row().Scan(&name, &text, &unused, &unused))
			schema.views = append(schema.views, text)
		} else {
			require.NoError(t, db.Raw(show).Row().Scan(&name, &text))
			schema.tables = append(schema.tables, text)
		}
	}
	schema.tables = append(schema.tables, rows...)
}
