package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"dibs/internal/sleep"
)

// ErrBooks means that Redis and MySQL differ.
var ErrBooks = errors.New("lab: the books differ")

// lab_stock has a campaign's stock, lab_users the users with a
// unit, lab_units a row per unit with its user. Many users may
// be NULL under the unique key: these units are free.
const (
	idType      = " VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin "
	createStock = "CREATE TABLE IF NOT EXISTS lab_stock (campaign_id" + idType + `PRIMARY KEY,
		remaining BIGINT NOT NULL) ENGINE=InnoDB`
	createUsers = "CREATE TABLE IF NOT EXISTS lab_users (campaign_id" + idType + ", user_id" + idType + `,
		PRIMARY KEY (campaign_id, user_id)) ENGINE=InnoDB`
	createUnits = "CREATE TABLE IF NOT EXISTS lab_units (campaign_id" + idType + ", user_id" + idType + `NULL,
		unit BIGINT, PRIMARY KEY (campaign_id, unit),
		UNIQUE KEY one_a_user (campaign_id, user_id)) ENGINE=InnoDB`
)

// rowsAtOnce is the number of rows or entries per command.
const rowsAtOnce = 1000

const (
	settlePoll = 10 * time.Millisecond
	settleMax  = 2 * time.Minute
)

// settle polls until done reports true.
func settle(ctx context.Context, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, settleMax)
	defer cancel()
	for {
		settled, err := done(ctx)
		if err != nil || settled {
			return err
		}
		if err := sleep.For(ctx, settlePoll); err != nil {
			return fmt.Errorf("%w: not yet after %s", ErrBooks, settleMax)
		}
	}
}

// prepareRow writes a campaign's stock to MySQL.
func (c *counter) prepareRow(ctx context.Context) error {
	for _, create := range []string{createStock, createUsers} {
		if _, err := c.DB.ExecContext(ctx, create); err != nil {
			return err
		}
	}
	_, err := c.DB.ExecContext(ctx, "REPLACE INTO lab_stock (campaign_id, remaining) VALUES (?, ?)",
		c.Campaign.ID, c.Campaign.Units)
	return err
}

func (c *counter) prepareUnits(ctx context.Context) error {
	if _, err := c.DB.ExecContext(ctx, createUnits); err != nil {
		return err
	}
	_, err := c.DB.ExecContext(ctx, "DELETE FROM lab_units WHERE campaign_id = ?", c.Campaign.ID)
	for from := int64(0); err == nil && from < c.Campaign.Units; from += rowsAtOnce {
		var args []any
		for unit := from; unit < min(from+rowsAtOnce, c.Campaign.Units); unit++ {
			args = append(args, c.Campaign.ID, unit)
		}
		rows := strings.Repeat(", (?, ?)", len(args)/2)[2:]
		_, err = c.DB.ExecContext(ctx, "INSERT INTO lab_units (campaign_id, unit) VALUES "+rows, args...) //nolint:gosec // placeholders
	}
	return err
}

// execer is a database or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func changed(ctx context.Context, on execer, statement string, args ...any) (bool, error) {
	res, err := on.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, fmt.Errorf("lab: mysql: %w", err)
	}
	rows, err := res.RowsAffected()
	return rows > 0, err
}

// takeOne is one UPDATE per claim; false if the row has nothing left.
func (c *counter) takeOne(ctx context.Context, on execer) (bool, error) {
	return changed(ctx, on, `UPDATE lab_stock SET remaining = remaining - 1
		WHERE campaign_id = ? AND remaining >= 1`, c.Campaign.ID)
}

// bookOne is takeOne for a unit sold by Redis.
func (c *counter) bookOne(ctx context.Context) error {
	taken, err := c.takeOne(ctx, c.DB)
	if err == nil && !taken {
		err = fmt.Errorf("%w: redis sold what mysql does not have", ErrBooks)
	}
	return err
}

// mark records a user's unit; false if there is one.
func (c *counter) mark(ctx context.Context, tx *sql.Tx, user string) (bool, error) {
	return changed(ctx, tx, "INSERT IGNORE INTO lab_users (campaign_id, user_id) VALUES (?, ?)",
		c.Campaign.ID, user)
}

// sellLockedRow locks the stock's row, reads it, decides and writes:
// read-then-write under the database's lock. The user's row is not read FOR
// UPDATE: if missing, that would lock the gap for other users' inserts.
func (c *counter) sellLockedRow(ctx context.Context, user string) (Outcome, error) {
	return c.transact(ctx, nil, func(ctx context.Context, tx *sql.Tx) (Outcome, error) {
		var stock int64
		const lock = "SELECT remaining FROM lab_stock WHERE campaign_id = ? FOR UPDATE"
		if err := tx.QueryRowContext(ctx, lock, c.Campaign.ID).Scan(&stock); err != nil {
			return "", fmt.Errorf("lab: lock row: %w", err)
		}
		if err := c.at(StepRead); err != nil {
			return "", err
		}
		if stock < 1 {
			return SoldOut, nil
		}
		marked, err := c.mark(ctx, tx, user)
		if err != nil || !marked {
			return OverLimit, err
		}
		_, err = c.takeOne(ctx, tx)
		return Claimed, err
	})
}

// sellConditional lets the UPDATE decide: its WHERE is the rule,
// its row count the result. The user's row comes first and the
// contended stock row last, to hold its lock briefly.
func (c *counter) sellConditional(ctx context.Context, user string) (Outcome, error) {
	return c.transact(ctx, nil, func(ctx context.Context, tx *sql.Tx) (Outcome, error) {
		marked, err := c.mark(ctx, tx, user)
		if err != nil || !marked {
			return OverLimit, err
		}
		taken, err := c.takeOne(ctx, tx)
		if err != nil || !taken {
			return SoldOut, err
		}
		return Claimed, c.at(StepWritten)
	})
}

// sellUnit takes the first free row that no other claim has
// locked, so that claims don't queue. READ COMMITTED locks rows
// without gaps, which would block inserts of other users.
func (c *counter) sellUnit(ctx context.Context, user string) (Outcome, error) {
	committed := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	return c.transact(ctx, committed, func(ctx context.Context, tx *sql.Tx) (Outcome, error) {
		unit, err := c.freeUnit(ctx, tx)
		if errors.Is(err, sql.ErrNoRows) {
			return SoldOut, nil
		}
		if err != nil {
			return "", fmt.Errorf("lab: find unit: %w", err)
		}
		if err := c.at(StepRead); err != nil {
			return "", err
		}
		_, err = tx.ExecContext(ctx, "UPDATE lab_units SET user_id = ? WHERE campaign_id = ? AND unit = ?",
			user, c.Campaign.ID, unit)
		if isMySQL(err, duplicateKey) {
			return OverLimit, nil
		}
		if err != nil {
			return "", fmt.Errorf("lab: take unit: %w", err)
		}
		return Claimed, c.at(StepWritten)
	})
}

// freeUnit finds a free unit and locks its row. If all free rows
// are locked it waits: a holder may roll back, which would make
// an earlier "sold out" wrong.
func (c *counter) freeUnit(ctx context.Context, tx *sql.Tx) (unit int64, err error) {
	const free = `SELECT unit FROM lab_units WHERE campaign_id = ? AND user_id IS NULL
		LIMIT 1 FOR UPDATE`
	err = tx.QueryRowContext(ctx, free+" SKIP LOCKED", c.Campaign.ID).Scan(&unit)
	if errors.Is(err, sql.ErrNoRows) {
		err = tx.QueryRowContext(ctx, free, c.Campaign.ID).Scan(&unit)
	}
	return unit, err
}

// Errors of MySQL. Only a deadlock is retried.
const (
	duplicateKey    = 1062
	lockWaitTimeout = 1205
	deadlock        = 1213
)

// isMySQL reports whether err is the server's error of this number.
func isMySQL(err error, number uint16) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == number
}

type txFunc func(ctx context.Context, tx *sql.Tx) (Outcome, error)

// transact runs one claim's transaction and retries deadlocks until patience
// ends. It commits if do returns Claimed, else rolls back.
func (c *counter) transact(ctx context.Context, opts *sql.TxOptions, do txFunc) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	for {
		outcome, err := c.transactOnce(ctx, opts, do)
		switch {
		case err == nil:
			return outcome, nil
		case errors.Is(ctx.Err(), context.DeadlineExceeded), isMySQL(err, lockWaitTimeout):
			return Busy, nil
		case !isMySQL(err, deadlock):
			return "", err
		}
	}
}

func (c *counter) transactOnce(ctx context.Context, opts *sql.TxOptions, do txFunc) (Outcome, error) {
	tx, err := c.DB.BeginTx(ctx, opts)
	if err != nil {
		return "", fmt.Errorf("lab: begin: %w", err)
	}
	outcome, err := do(ctx, tx)
	if err != nil || outcome != Claimed {
		rollback := tx.Rollback()
		if errors.Is(rollback, sql.ErrTxDone) { // the end of ctx did it
			rollback = nil
		}
		return outcome, errors.Join(err, rollback)
	}
	return Claimed, tx.Commit()
}
