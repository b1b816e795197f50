package migrations_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"testing/fstest"

	_ "github.com/glebarez/sqlite"
	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/internal/migrations"
	"dibs/internal/testkit/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func openMySQL(t *testing.T) *sql.DB {
	t.Helper()
	return open(t, "mysql", testenv.Database(t).DSN)
}

func openSQLite(t *testing.T) *sql.DB {
	t.Helper()
	return open(t, "sqlite", filepath.Join(t.TempDir(), "dibs.db"))
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// scripts are one dialect's files, oldest first.
func scripts(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("mysql/*.sql")
	require.NoError(t, err)
	return names
}

var (
	comment     = regexp.MustCompile(`(?m)^--.*$`)
	runsTwice   = regexp.MustCompile(`^(?:CREATE TABLE IF NOT EXISTS|CREATE OR REPLACE SQL SECURITY INVOKER VIEW) `)
	letOthersBe = regexp.MustCompile(`^(?:ALTER TABLE|CREATE (?:UNIQUE )?INDEX) [^;]*\b(?:ALGORITHM=INSTANT|LOCK=NONE)$`)
)

// brokenRule names the rule of docs/architecture.md for later
// MySQL migrations that a file breaks.
func brokenRule(text string) string {
	var changes int
	statements := strings.Split(strings.TrimSuffix(strings.TrimSpace(comment.ReplaceAllString(text, "")), ";"), ";")
	for _, statement := range statements {
		switch statement = strings.TrimSpace(statement); {
		case runsTwice.MatchString(statement):
		case letOthersBe.MatchString(statement):
			changes++
		default:
			return "neither may run twice nor lets others write to the table at the same time: " + statement
		}
	}
	if changes > 0 && len(statements) > 1 {
		return "a change of a table stands alone in its file: an interrupted one could not be run again"
	}
	return ""
}

func TestLaterMigrationsKeepTheRules(t *testing.T) {
	t.Parallel()
	samples, err := filepath.Glob("testdata/mysql/*.sql")
	require.NoError(t, err)
	require.Len(t, samples, 2)
	for _, name := range append(samples, scripts(t)[1:]...) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Empty(t, brokenRule(string(text)), name)
	}
	for _, broken := range []string{
		"ALTER TABLE a ADD b INT;", "CREATE TABLE a (b INT);", "UPDATE a SET b = 1;", "DROP TABLE a;",
		"CREATE INDEX i ON a (b) LOCK=NONE;\nCREATE INDEX j ON a (c) LOCK=NONE;",
	} {
		require.NotEmpty(t, brokenRule(broken), broken)
	}
	require.Empty(t, brokenRule("-- for look-ups\nCREATE INDEX i ON a (b) LOCK=NONE;"))
}

// withSamples is the schema plus testdata's migrations, which
// stand for the next version's.
func withSamples(t *testing.T, dialect string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	for _, folder := range []string{dialect, filepath.Join("testdata", dialect)} {
		names, err := filepath.Glob(filepath.Join(folder, "*.sql"))
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			files[filepath.Base(name)] = &fstest.MapFile{Data: text}
		}
	}
	return files
}

// A column is added as docs/architecture.md says, to a database
// with claims: in both dialects, also by a migrator that died
// before recording it. The older program must go on.
func TestSample_AColumnIsAdded(t *testing.T) {
	t.Parallel()
	described := map[string][]string{}
	for dialect, db := range map[string]*sql.DB{migrations.MySQL: openMySQL(t), migrations.SQLite: openSQLite(t)} {
		up(t, db, dialect)
		_, err := db.ExecContext(t.Context(), "INSERT INTO definitions (campaign_id, kind, status, time_zone, created_at)"+
			" VALUES ('spring', 'coupon', 'open', 'UTC', '2027-01-01 00:00:00.000')")
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), "INSERT INTO lots (campaign_id, shard, partition_no, total, updated_at) VALUES ('spring', 0, 0, 5, '2027-01-01 00:00:00.000')")
		require.NoError(t, err)

		next := withSamples(t, dialect)
		applied, err := migrations.UpFrom(t.Context(), db, dialect, next)
		require.NoError(t, err)
		require.Equal(t, []string{"00105_definitions_note.sql", "00106_campaigns_note.sql"}, applied)
		require.Equal(t, []string{"spring"}, lines(t, db, "SELECT "+joined(dialect, "id", "note")+" FROM campaigns"))
		require.NoError(t, migrations.Check(t.Context(), db, dialect), "the program of before")
		require.Empty(t, up(t, db, dialect), "its migrator finds nothing to do")
		if dialect == migrations.MySQL {
			_, err = db.ExecContext(t.Context(), "DELETE FROM goose_db_version WHERE version_id > 101")
			require.NoError(t, err)
			_, err = migrations.UpFrom(t.Context(), db, dialect, next)
			require.NoError(t, err)
			require.Equal(t, []string{"100", "101", "102", "103", "104", "105", "106"}, lines(t, db, "SELECT version_id FROM goose_db_version WHERE version_id > 0 ORDER BY 1"))
			described[dialect] = describeMySQL(t, db)
		} else {
			described[dialect] = describeSQLite(t, db)
		}
	}
	require.Equal(t, described[migrations.MySQL], described[migrations.SQLite])
}

// A change to a released migration would reach no existing database.
func TestReleasedMigrationsStay(t *testing.T) {
	t.Parallel()
	released, err := os.ReadFile("testdata/released.txt")
	require.NoError(t, err)
	listed := 0
	for line := range strings.Lines(string(released)) {
		name, digest, _ := strings.Cut(strings.TrimSpace(line), " ")
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, digest, fmt.Sprintf("%x", sha256.Sum256(text)), "%s: add a migration instead", name)
		listed++
	}
	require.GreaterOrEqual(t, listed, 2)
	require.True(t, strings.HasPrefix(filepath.Base(scripts(t)[0]), "00100_"), "a database below that is refused")
}

func up(t *testing.T, db *sql.DB, dialect string) []string {
	t.Helper()
	applied, err := migrations.Up(t.Context(), db, dialect)
	require.NoError(t, err)
	return applied
}

// migrated is a MySQL with the newest schema.
func migrated(t *testing.T) *sql.DB {
	t.Helper()
	db := openMySQL(t)
	up(t, db, migrations.MySQL)
	return db
}

func TestUp_BringsAnEmptyDatabaseUpAndThenHasNothingToDo(t *testing.T) {
	t.Parallel()
	for dialect, db := range map[string]*sql.DB{migrations.MySQL: openMySQL(t), migrations.SQLite: openSQLite(t)} {
		err := migrations.Check(t.Context(), db, dialect)
		require.ErrorIs(t, err, migrations.ErrOld, dialect)
		require.Regexp(t, "schema is at version 0, this program needs \\d{3,}: run `dibs migrate`", err.Error())

		require.NotEmpty(t, up(t, db, dialect))
		require.NoError(t, migrations.Check(t.Context(), db, dialect))
		require.Empty(t, up(t, db, dialect))
		_, err = db.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)")
		require.NoError(t, err)
		require.NoError(t, migrations.Check(t.Context(), db, dialect), "a newer schema is let be")
		_, err = migrations.Up(t.Context(), db, "oracle")
		require.ErrorIs(t, err, migrations.ErrDialect)
	}
}

func TestUp_TwoMigratorsAtOnceDoNotCollide(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t).DSN
	var g errgroup.Group
	ran := make([]int, 4)
	for i := range ran {
		db := open(t, "mysql", dsn)
		g.Go(func() error {
			applied, err := migrations.Up(t.Context(), db, migrations.MySQL)
			ran[i] = len(applied)
			return err
		})
	}
	require.NoError(t, g.Wait())
	sort.Ints(ran)
	require.Equal(t, []int{0, 0, 0, len(scripts(t))}, ran)
}

// A migrator that dies midway leaves some of its tables, because
// MySQL's DDL is not transactional.
func TestUp_GoesOnAfterAMigrationThatWasCutShort(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for _, statement := range []string{"DROP VIEW stock_watch", "DROP TABLE settings", "DELETE FROM goose_db_version WHERE version_id > 0"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NotEmpty(t, up(t, db, migrations.MySQL))
	require.NoError(t, migrations.Check(t.Context(), db, migrations.MySQL))
	_, err := db.ExecContext(t.Context(), "SELECT * FROM stock_watch")
	require.NoError(t, err)
}

func TestBothDialectsHaveTheSameColumnsAndKeys(t *testing.T) {
	t.Parallel()
	my, lite := migrated(t), openSQLite(t)
	up(t, lite, migrations.SQLite)
	want := describeMySQL(t, my)
	require.Greater(t, len(want), 80)
	require.Equal(t, want, describeSQLite(t, lite))

	_, err := lite.ExecContext(t.Context(), "DROP INDEX claims_place")
	require.NoError(t, err)
	require.NotEqual(t, want, describeSQLite(t, lite), "the comparison sees a key that is missing")
}

// DBAs need a comment on every table and column, names without
// quotes, one type per kind of value, and few counters.
func TestTheSchemaIsFitToBeRead(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	const ours = " WHERE table_schema = DATABASE() AND table_name NOT LIKE 'goose%'"
	bare := "SELECT table_name FROM information_schema.tables" + ours + " AND table_type = 'BASE TABLE' AND table_comment = ''"
	require.Empty(t, lines(t, db, bare))
	const tables = ours + " AND table_name IN (SELECT table_name FROM information_schema.tables" + ours + " AND table_type = 'BASE TABLE')"
	const columns = " FROM information_schema.columns" + tables
	uncommented := "SELECT CONCAT(table_name, '.', column_name)" + columns + " AND column_comment = '' ORDER BY 1"
	require.Empty(t, lines(t, db, uncommented))
	types := "SELECT column_name" + columns + " GROUP BY column_name HAVING COUNT(DISTINCT column_type) > 1 ORDER BY 1"
	require.Equal(t, []string{"name", "status"}, lines(t, db, types), "which are of several kinds")
	require.Equal(t, []string{"34"}, lines(t, db, "SELECT COUNT(*)"+columns+" AND table_name = 'lots'"), "31, and the key in two forms")
	for _, name := range lines(t, db, "SELECT DISTINCT column_name"+columns) {
		_, err := db.ExecContext(t.Context(), "SELECT 1 AS "+name)
		if name == "before" { // of audit_log, a familiar name
			require.Error(t, err, "it is reserved")
			continue
		}
		require.NoError(t, err)
	}
	_, err := db.ExecContext(t.Context(), "ALTER TABLE lots ADD COLUMN seq INT NOT NULL")
	require.NoError(t, err)
	require.Equal(t, []string{"lots.seq"}, lines(t, db, uncommented), "the test sees what it looks for")
	require.Equal(t, []string{"name", "seq", "status"}, lines(t, db, types))

	const redundant = "SELECT CONCAT_WS(' ', table_name, redundant_index_name, 'as', dominant_index_name)" +
		" FROM sys.schema_redundant_indexes WHERE table_schema = DATABASE()"
	require.Empty(t, lines(t, db, redundant), "no index is part of another")
	_, err = db.ExecContext(t.Context(), "CREATE INDEX again ON lots (residency)")
	require.NoError(t, err)
	require.Equal(t, []string{"lots again as lots_of_residency"}, lines(t, db, redundant))
}

// Ids differ by case, accent and trailing space. A server that
// folds any of these would merge ids.
func TestTextIsComparedByteForByte(t *testing.T) {
	t.Parallel()
	names := []string{"a", "A", "a ", "á", "a\u0301", "ß", "ss", "😀", "😁", "ａ"}
	for dialect, db := range map[string]*sql.DB{migrations.MySQL: openMySQL(t), migrations.SQLite: openSQLite(t)} {
		up(t, db, dialect)
		for i, name := range names {
			_, err := db.ExecContext(t.Context(), "INSERT INTO settings (name, value) VALUES (?, ?)", name, fmt.Sprint(i))
			require.NoError(t, err, "%s %q", dialect, name)
		}
		for i, name := range names {
			var value, back string
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT name, value FROM settings WHERE name = ?", name).Scan(&back, &value))
			require.Equal(t, name, back)
			require.Equal(t, fmt.Sprint(i), value, "%s %q", dialect, name)
		}
	}
}

// No statement writes remaining, and the database must refuse impossible
// counters. A total below what is claimed is possible.
func TestTheDatabaseRefusesCountersThatCannotBe(t *testing.T) {
	t.Parallel()
	for dialect, db := range map[string]*sql.DB{migrations.MySQL: openMySQL(t), migrations.SQLite: openSQLite(t)} {
		up(t, db, dialect)
		for _, id := range []string{"lowered", "spread"} {
			_, err := db.ExecContext(t.Context(), "INSERT INTO definitions (campaign_id, kind, status, time_zone, created_at)"+
				" VALUES (?, 'coupon', 'open', 'UTC', '2026-11-21 00:00:00')", id)
			require.NoError(t, err)
		}
		put := func(id string, shard, total, claimed int) error {
			_, err := db.ExecContext(t.Context(), "INSERT INTO lots (campaign_id, shard, partition_no, updated_at, total, claimed)"+
				" VALUES (?, ?, 0, '2026-11-21 00:00:00', ?, ?)", id, shard, total, claimed)
			return err
		}
		require.NoError(t, put("lowered", 0, 1, 5))
		require.NoError(t, put("spread", 0, 7, 0))
		require.NoError(t, put("spread", 2, 3, 4))
		require.Error(t, put("spread", 2, 1, 0), dialect)
		require.Error(t, put("bad", 0, -1, 0), dialect)
		require.NoError(t, put("spread", 3, -1, 0), "a shard may owe units")
		require.Error(t, put("bad", 0, 1, -1), dialect)
		require.Equal(t, []string{"lowered", "spread", "spread#2", "spread#3"}, lines(t, db, "SELECT id FROM lots ORDER BY id"))
		for _, statement := range []string{"UPDATE lots SET remaining = 1", "UPDATE lots SET id = 'a'"} {
			_, err := db.ExecContext(t.Context(), statement)
			require.Error(t, err, dialect)
		}
		require.Equal(t, []string{"lowered 0", "spread 7"}, lines(t, db, "SELECT "+joined(dialect, "id", "remaining")+" FROM campaigns ORDER BY id"))
		require.Equal(t, []string{"spread 2", "spread 3"}, lines(t, db, "SELECT "+joined(dialect, "campaign_id", "shard")+" FROM campaign_shards"))
	}
}

var (
	sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")
	sqlSpan  = regexp.MustCompile("`(SELECT [^`…]+)`")
	zoned    = regexp.MustCompile(`(?i)\b(?:NOW|CURRENT_TIMESTAMP|CURDATE|CURTIME|SYSDATE|LOCALTIME|UNIX_TIMESTAMP|FROM_UNIXTIME)\b`)
)

// The documents' queries must run on the schema, with the same
// result in any session time zone. docs/dba.md's have their own
// tests.
func TestQueriesOfTheDocumentsRun(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	ran := 0
	for _, path := range pages {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var found []string
		for _, m := range append(sqlBlock.FindAllStringSubmatch(string(text), -1), sqlSpan.FindAllStringSubmatch(string(text), -1)...) {
			found = append(found, strings.Split(m[1], ";\n")...)
		}
		for _, query := range found {
			if filepath.Base(path) == "dba.md" || !strings.Contains(query, "SELECT") || strings.Contains(query, "GRANT ") {
				continue
			}
			require.NotRegexp(t, zoned, query, path)
			_, err := db.ExecContext(t.Context(), query)
			require.NoError(t, err, "%s: %s", path, query)
			ran++
		}
	}
	require.Greater(t, ran, 10)
}

func joined(dialect, a, b string) string {
	if dialect == migrations.SQLite {
		return a + " || ' ' || " + b
	}
	return "CONCAT_WS(' ', " + a + ", " + b + ")"
}

// A development schema must stay unchanged, and the message must
// say what to do.
func TestUp_RefusesADevelopmentSchema(t *testing.T) {
	t.Parallel()
	for dialect, db := range map[string]*sql.DB{migrations.MySQL: openMySQL(t), migrations.SQLite: openSQLite(t)} {
		for _, statement := range []string{
			"CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY, version_id BIGINT NOT NULL, is_applied INT NOT NULL, tstamp DATETIME NULL)",
			"INSERT INTO goose_db_version (id, version_id, is_applied) VALUES (1, 0, 1), (2, 1, 1), (3, 20, 1)",
			"CREATE TABLE campaigns (id VARCHAR(64) PRIMARY KEY)",
		} {
			_, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		_, err := migrations.Up(t.Context(), db, dialect)
		require.ErrorIs(t, err, migrations.ErrDevelopment)
		require.ErrorContains(t, err, "it is at version 20, and releases begin at 100: create an empty database and run `dibs migrate` there")
		require.ErrorIs(t, migrations.Check(t.Context(), db, dialect), migrations.ErrDevelopment)
		_, err = db.ExecContext(t.Context(), "SELECT 1 FROM claims")
		require.Error(t, err, "%s: nothing was made", dialect)
	}
}

func describeMySQL(t *testing.T, db *sql.DB) []string {
	t.Helper()
	all := lines(t, db, `SELECT CONCAT_WS(' ', c.table_name, c.column_name, IF(t.table_type = 'VIEW', '', c.is_nullable))
		FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE table_schema = DATABASE() AND table_name NOT LIKE 'goose%'`)
	all = append(all, lines(t, db, `SELECT CONCAT_WS(' ', table_name, IF(non_unique = 0, 'unique', 'key'),
		GROUP_CONCAT(column_name ORDER BY seq_in_index)) FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND table_name NOT LIKE 'goose%' GROUP BY table_name, index_name, non_unique`)...)
	sort.Strings(all)
	return all
}

func describeSQLite(t *testing.T, db *sql.DB) []string {
	t.Helper()
	all := lines(t, db, `SELECT m.name || ' ' || c.name || ' ' ||
		CASE WHEN m.type = 'view' THEN '' WHEN c."notnull" THEN 'NO' ELSE 'YES' END
		FROM sqlite_master m, pragma_table_xinfo(m.name) c
		WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'goose%' AND m.name NOT LIKE 'sqlite%'`)
	all = append(all, lines(t, db, `SELECT m.name || ' ' || CASE WHEN i."unique" THEN 'unique' ELSE 'key' END || ' ' ||
		(SELECT group_concat(name, ',') FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno))
		FROM sqlite_master m, pragma_index_list(m.name) i
		WHERE m.type = 'table' AND m.name NOT LIKE 'goose%' AND m.name NOT LIKE 'sqlite%'`)...)
	sort.Strings(all)
	return all
}

func lines(t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	rows, err := db.QueryContext(context.WithoutCancel(t.Context()), query)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var all []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		all = append(all, strings.TrimSpace(line))
	}
	require.NoError(t, rows.Err())
	return all
}
