package testenv

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

// dsnVariable names a server for Database, instead of a new one:
// a go-sql-driver DSN, with or without a database, whose user
// may create and drop databases.
const dsnVariable = "DIBS_TEST_MYSQL_DSN"

// dropTimeout limits the drop of a test's database: an open
// transaction blocks it.
const dropTimeout = 20 * time.Second

// Values of SQLServerDB.Flavor.
const (
	FlavorMariaDB = "mariadb"
	FlavorMySQL   = "mysql"
)

// SQLServerDB is an empty database on the SQL server shared by
// all tests of this binary.
type SQLServerDB struct {
	DSN    string // for go-sql-driver, with parseTime, interpolateParams and UTC
	Name   string // of the database
	Flavor string // FlavorMariaDB or FlavorMySQL
}

// Database creates an empty database for this test and drops it
// at its end. The server is a MariaDB started once per test
// binary, or that of DIBS_TEST_MYSQL_DSN.
func Database(t testing.TB) *SQLServerDB {
	t.Helper()
	server, err := sharedSQL()
	require.NoError(t, err)
	name := strings.ReplaceAll(UniqueID(t, "dibs"), "-", "_")
	require.NoError(t, execSQL(t.Context(), server.dsn(""), "CREATE DATABASE "+quoteName(name)))
	t.Cleanup(func() { dropDatabase(t, server, name) })
	return &SQLServerDB{DSN: server.dsn(name), Name: name, Flavor: server.flavor}
}

// dropDatabase only logs a failure: the test left a transaction
// open or stopped its own server.
func dropDatabase(t testing.TB, server sqlAddress, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	if err := execSQL(ctx, server.dsn(""), "DROP DATABASE "+quoteName(name)); err != nil {
		t.Logf("testenv: the database stays: %v", err)
	}
}

type sqlAddress struct {
	config *mysql.Config
	flavor string
}

func (a sqlAddress) dsn(db string) string {
	c := a.config.Clone()
	c.DBName = db
	return c.FormatDSN()
}

var sharedSQL = sync.OnceValues(func() (sqlAddress, error) {
	text := os.Getenv(dsnVariable)
	if text == "" {
		_, addr, closeAll, err := startSQL(nil)
		if err != nil {
			return sqlAddress{}, err
		}
		machine.AtEnd(func() { _ = closeAll() })
		text = dsn(addr, "")
	}
	return resolveSQL(text)
})

// resolveSQL finds out the kind of a DSN's server.
func resolveSQL(text string) (sqlAddress, error) {
	config, err := mysql.ParseDSN(text)
	if err != nil {
		return sqlAddress{}, fmt.Errorf("testenv: %s: %w", dsnVariable, err)
	}
	a := sqlAddress{config: withOptions(config), flavor: FlavorMySQL}
	db, err := openQuiet(a.dsn(""))
	if err != nil {
		return sqlAddress{}, err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), machine.StartTimeout)
	defer cancel()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return sqlAddress{}, fmt.Errorf("testenv: ask the SQL server for its version: %w", err)
	}
	if strings.Contains(version, "MariaDB") {
		a.flavor = FlavorMariaDB
	}
	return a, nil
}
