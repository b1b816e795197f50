package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

type variable struct{ name, value string }

// Session variables that Dibs relies on, whatever the server's defaults.
// Every connection has them, and the operator's DSN can't change them.
// Statements depend on nothing else: they use no foreign keys,
// AUTO_INCREMENT, GROUP_CONCAT, division or TIMESTAMP columns.

// The driver sets sentAtOnce as it connects. They include those that would
// truncate or alter the reply to the query for the rest.
var sentAtOnce = []variable{
	{"sql_mode", strictMode},
	{"time_zone", "'+00:00'"},                    // times in the database are UTC
	{"sql_select_limit", "18446744073709551615"}, // a limit would truncate lists and sums
	// else a join of large tables is refused (max_join_size)
	{"sql_big_selects", "ON"},
}

// strictMode makes the server refuse values that it would
// otherwise truncate or round silently.
const strictMode = "'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"

// setIfOther are read first and set only if they differ. So a
// variable unknown to the server is no error, and with usual
// defaults a proxy that tracks variables has none to track.
var setIfOther = []variable{
	// else a statement outside a transaction is not committed
	{"autocommit", "ON"},
	// else a commit starts a transaction that is never committed
	{"completion_type", "NO_CHAIN"},
	// all transactions are written and tested for this level
	{"transaction_isolation", "'REPEATABLE-READ'"},
	// the same; MariaDB before 11.1 has only this name
	{"tx_isolation", "'REPEATABLE-READ'"},
	{"transaction_read_only", "OFF"},
	{"tx_read_only", "OFF"},
	// MariaDB: else a flush fails whenever a row changed since its start
	{"innodb_snapshot_isolation", "OFF"},
	{"unique_checks", "ON"},           // else unique indexes may get duplicates
	{"check_constraint_checks", "ON"}, // MariaDB
	{"sql_safe_updates", "OFF"},       // else an UPDATE without a key is refused
	// else ids with a common prefix are unordered, and pages skip some
	{"max_sort_length", "1024"},
	// MariaDB: else long statements are ended; contexts limit them
	{"max_statement_time", "0"},
	{"max_execution_time", "0"},          // the same in MySQL
	{"default_storage_engine", "InnoDB"}, // else the migrations table has no transactions
}

// charset and collation are those of the connection. Under a
// language's collation, which may be the server's default,
// different literals would compare equal.
const charset, collation = "utf8mb4", "utf8mb4_bin"

const lockWaitVariable = "innodb_lock_wait_timeout"

// session sets what the driver sends at once, and returns the
// other variables.
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

// pinned sets session variables on each new connection.
type pinned struct {
	driver.Connector

	variables []variable
	within    time.Duration // of a server that takes connections and never answers
}

// Connect makes a connection and sets its variables.
func (p pinned) Connect(ctx context.Context) (driver.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	c, err := p.connect(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("sqlstore: the database takes connections, but does not answer within %s: %w", p.within, err)
	}
	return c, err
}

func (p pinned) connect(ctx context.Context) (driver.Conn, error) {
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

// pin sets the variables that the server knows and that differ.
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

// isValue reports whether a value shown by the server equals a literal.
func isValue(shown, literal string) bool {
	if number, err := strconv.ParseFloat(shown, 64); err == nil { // MariaDB shows 0 as 0.000000
		shown = strconv.FormatFloat(number, 'f', -1, 64)
	}
	return strings.EqualFold(shown, strings.Trim(literal, "'"))
}

// readVariables returns the values of variables, without those
// unknown to the server.
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
