package migrations

import (
	"io/fs"
	"regexp"
	"strings"
	"testing/fstest" //nolint:depguard // files in memory; goose reads no others
)

// sqliteForms are what MySQL writes in another way than SQLite, in the order in which they are replaced.
var sqliteForms = []struct {
	mysql  *regexp.Regexp
	sqlite string
}{
	{regexp.MustCompile(` +COMMENT *=?'(?:[^']|'')*'`), ""},
	{regexp.MustCompile(`\) ENGINE=[^;]*;`), ");"},
	{regexp.MustCompile(`DATETIME\(3\)`), "DATETIME"}, // the name by which the driver knows a time
	{regexp.MustCompile(`ENUM\([^)]*\)`), "VARCHAR(16)"},
	{regexp.MustCompile(`(?m)^(  (\w+) +VARCHAR\((\d+)\)(?: NOT)? NULL.*),$`), "$1 CHECK (length($2) <= $3),"}, // which it ignores
	{regexp.MustCompile(`GREATEST\(`), "MAX("},
	{regexp.MustCompile(` FROM DUAL\b`), ""},
	{regexp.MustCompile(`CREATE OR REPLACE SQL SECURITY INVOKER VIEW`), "CREATE VIEW IF NOT EXISTS"},
	{
		regexp.MustCompile(`TIMESTAMPDIFF\(SECOND, (\(.*\)),\s+UTC_TIMESTAMP\(3\)\)`),
		"CAST((julianday('now') - julianday($1)) * 86400 AS INTEGER)",
	},
}

var (
	sqlTable = regexp.MustCompile(`(?s)(CREATE TABLE IF NOT EXISTS (\w+) \(\n)(.*?)\n\);`)
	sqlKey   = regexp.MustCompile(`^  (UNIQUE )?KEY (\w+) (\(.*\)),?$`)
)

// toSQLite translates a migration. Text compares byte for byte in SQLite by itself.
func toSQLite(mysql string) string {
	for _, form := range sqliteForms {
		mysql = form.mysql.ReplaceAllString(mysql, form.sqlite)
	}
	return sqlTable.ReplaceAllStringFunc(mysql, func(table string) string {
		parts := sqlTable.FindStringSubmatch(table)
		var columns, indexes []string
		for line := range strings.SplitSeq(parts[3], "\n") {
			if key := sqlKey.FindStringSubmatch(line); key != nil {
				indexes = append(indexes, "\nCREATE "+key[1]+"INDEX IF NOT EXISTS "+key[2]+" ON "+parts[2]+" "+key[3]+";")
			} else {
				columns = append(columns, strings.TrimSuffix(line, ","))
			}
		}
		return parts[1] + strings.Join(columns, ",\n") + "\n);" + strings.Join(indexes, "")
	})
}

// translated are the files of MySQL for SQLite.
func translated(dir fs.FS) (fs.FS, error) {
	names, err := fs.Glob(dir, "*.sql")
	files := make(fstest.MapFS)
	for _, name := range names {
		text, readErr := fs.ReadFile(dir, name)
		if readErr != nil {
			return nil, readErr
		}
		files[name] = &fstest.MapFile{Data: []byte(toSQLite(string(text)))}
	}
	return files, err
}
