package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// variable is a session variable of the server, and its value as SQL.
type variable struct{ name, value string }

// Session variables that Dibs relies on, whatever the server's own defaults
// are. Each connection has them, and an operator's DSN cannot change them. They
// are all that the statements of Dibs depend on: these have no foreign keys, no
// AUTO_INCREMENT, no GROUP_CONCAT, no division and no TIMESTAMP columns.

// sentAtOnce are set by the driver as it connects. They include what would cut
// or bend the answer to the question for the others.
var sentAtOnce = []variable{
	{"sql_mode", strictMode},
	{"time_zone", "'+00:00'"},                    // times of the database are UTC
	{"sql_select_limit", "18446744073709551615"}, // or the end of every list and sum is missing
	// or a join of large tables is refused (max_join_size)
	{"sql_big_selects", "ON"},
}

// strictMode makes the server refuse values that it would otherwise cut or
// round silently.
const strictMode = "'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"

// setIfOther are read, and set if they have another value. So a variable that a
// server does not know is no error, and a proxy that tracks variables has
// nothing to track on a server with usual defaults.
var setIfOther = []variable{
	// or no statement outside a transaction is committed
	{"autocommit", "ON"},
	// or a commit begins a transaction that nobody commits
	{"completion_type", "NO_CHAIN"},
	// what all transactions are written and tested for
	{"transaction_isolation", "'REPEATABLE-READ'"},
	// the same; MariaDB before 11.1 has this name alone
	{"tx_isolation", "'REPEATABLE-READ'"},
	{"transaction_read_only", "OFF"},
	{"tx_read_only", "OFF"},
	// MariaDB: or a flush fails whenever a row changed since it began
	{"innodb_snapshot_isolation", "OFF"},
	{"unique_checks", "ON"},           // or unique indexes may get duplicates
	{"check_constraint_checks", "ON"}, // MariaDB
	{"sql_safe_updates", "OFF"},       // or an UPDATE by something else than a key is refused
	// or ids that begin alike are in no order, and pages skip some
	{"max_sort_length", "1024"},
	// MariaDB: or a long statement is ended; contexts bound them
	{"max_statement_time", "0"},
	{"max_execution_time", "0"},          // the same of MySQL
	{"default_storage_engine", "InnoDB"}, // or the table of migrations has no transactions
}

// charset and collation are those of the connection. With the collation of a
// language, which may be the server's default, literals that differ would be
// equal.
const charset, collation = "utf8mb4", "utf8mb4_bin"

const lockWaitVariable = "innodb_lock_wait_timeout"

// session sets what the driver sends at once, and returns the other variables.
func (c Config) session(dsn *mysql.Config) []variable {
	if dsn.Params == nil {
		dsn.Params = make(map[string]string)
	}
	for _, v := range sentAtOnce {
		dsn.Params[v.name] = v.value
	}
	// an operator may choose how long a flush waits for a lock
	if dsn.Params[lockWaitVariable] == "" {
		dsn.Params[lockWaitVariable] = strconv.Itoa(lockWaitSeconds)
	}
	if c.SchemaLockWait > 0 {
		dsn.Params["lock_wait_timeout"] = strconv.Itoa(int(c.SchemaLockWait.Seconds()))
	}
	return setIfOther
}

// pinned makes connections whose session variables are pinned.
type pinned struct {
	driver.Connector

	variables []variable
}

// Connect makes a connection.
func (p pinned) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(DriverConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("sqlstore: the driver's connection is a %T", c), c.Close())
	}
	if err := pin(ctx, conn, p.variables); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// pin sets the variables that the server knows and that have another value.
func pin(ctx context.Context, c DriverConn, variables []variable) error {
	has, err := readVariables(ctx, c, variables)
	if err != nil {
		return err
	}
	var others []string
	for _, v := range variables {
		if value, known := has[v.name]; known && !isValue(value, v.value) {
			others = append(others, v.name+" = "+v.value)
		}
	}
	if len(others) == 0 {
		return nil
	}
	_, err = c.ExecContext(ctx, "SET SESSION "+strings.Join(others, ", SESSION "), nil)
	return err
}

// isValue reports whether a value that the server shows is that of a literal.
func isValue(shown, literal string) bool {
	if number, err := strconv.ParseFloat(shown, 64); err == nil { // MariaDB shows 0 as 0.000000
		shown = strconv.FormatFloat(number, 'f', -1, 64)
	}
	return strings.EqualFold(shown, strings.Trim(literal, "'"))
}

// readVariables asks for the values of variables; one that the server does not
// know is left out.
func readVariables(ctx context.Context, c DriverConn, variables []variable) (map[string]string, error) {
	names := make([]string, len(variables))
	for i, v := range variables {
		names[i] = "'" + v.name + "'"
	}
	rows, err := c.QueryContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ("+strings.Join(names, ", ")+")", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	has := make(map[string]string)
	row := make([]driver.Value, len(rows.Columns()))
	for {
		err := rows.Next(row)
		switch {
		case errors.Is(err, io.EOF):
			return has, nil
		case err != nil:
			return nil, err
		}
		has[fmt.Sprintf("%s", row[0])] = fmt.Sprintf("%s", row[1])
	}
}
