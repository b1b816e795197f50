package torture

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"time"
)

// sqlFaults are for MariaDB or MySQL.
func sqlFaults() []*fault {
	return []*fault{
		{name: "kill sql", target: onSQL, weight: 2, lasts: span(20, 1500), takes: time.Second,
			inject: lasting(func(w *world) { w.sql.Kill() }, func(w *world) { w.sql.Start() })},
		{name: "restart sql", target: onSQL, weight: 1, lasts: span(20, 500), takes: time.Second,
			inject: lasting(func(w *world) { w.sql.Stop() }, func(w *world) { w.sql.Start() })},
		{name: "pause sql", target: onSQL, weight: 2, lasts: span(200, 6000),
			inject: lasting(func(w *world) { w.sql.Pause() }, func(w *world) { w.sql.Resume() })},
		{name: "roll back sql", target: onSQL, weight: 3, lasts: nearRollback, takes: 2 * time.Second, loses: always, undoes: true,
			inject: rollBackSQL},
		{name: "roll back sql far", target: onSQL, weight: 1, lasts: farRollback, takes: 2 * time.Second, loses: always, undoes: true,
			inject: rollBackSQL},
		{name: "sql is read-only", target: onSQL, weight: 3, lasts: span(100, 3000), inject: readOnly},
		{name: "sql kills connections", target: onSQL, weight: 2, lasts: span(1, 500), inject: killConnections},
		{name: "a stranger locks a campaign", target: onSQL, weight: 3, lasts: span(500, 5000), inject: lockRow},
		{name: "a stranger makes deadlocks", target: onSQL, weight: 3, lasts: span(500, 3000), inject: deadlocks},
	}
}

// rollBackSQL acts like a failover to a replica without the last
// commits, or a restored dump.
func rollBackSQL(w *world, s *injection) error {
	var data string
	if err := w.db.QueryRowContext(w.ctx, "SELECT @@datadir").Scan(&data); err != nil {
		return wrap(err)
	}
	then, err := os.MkdirTemp("", "dibs-torture-sql-")
	if err != nil {
		return wrap(err)
	}
	defer func() { _ = os.RemoveAll(then) }()
	copied := func() error { // of a killed server: as it would find its data
		return wrap(os.CopyFS(then, os.DirFS(data)))
	}
	restored := func() error {
		if err := os.RemoveAll(data); err != nil {
			return wrap(err)
		}
		return wrap(os.CopyFS(data, os.DirFS(then)))
	}
	for i, swap := range []func() error{copied, restored} {
		if err := w.Try(w.sql.Kill); err != nil {
			return err
		}
		err := swap()
		if err := errors.Join(err, w.Try(w.sql.Start)); err != nil {
			return err
		}
		if i == 0 {
			wait(w.ctx, s.lasts)
		}
	}
	s.what = "by " + s.lasts.Round(time.Millisecond).String()
	return nil
}

func readOnly(w *world, s *injection) error {
	variable := "super_read_only"
	if w.maria {
		variable = "read_only"
	}
	if _, err := w.db.ExecContext(w.ctx, "SET GLOBAL "+variable+" = 1"); err != nil {
		return wrap(err)
	}
	wait(w.ctx, s.lasts)
	// the first sets both in MySQL
	for _, statement := range []string{"SET GLOBAL " + variable + " = 0", "SET GLOBAL read_only = 0"} {
		if _, err := w.db.ExecContext(w.ctx, statement); err != nil {
			return wrap(err)
		}
	}
	return nil
}

func killConnections(w *world, s *injection) error {
	for till := time.Now().Add(s.lasts); ; wait(w.ctx, 20*time.Millisecond) {
		ids, err := w.strings("SELECT id FROM information_schema.processlist WHERE user = ?", user)
		if err != nil {
			return err
		}
		for _, id := range ids {
			_, _ = w.db.ExecContext(w.ctx, "KILL "+id) // it may have ended
		}
		if time.Now().After(till) || w.ctx.Err() != nil {
			return wrap(w.ctx.Err())
		}
	}
}

func lockRow(w *world, s *injection) error {
	s.what = pick(w.inForce, s.who).campaign
	return w.stranger(func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "SELECT id FROM campaigns WHERE id = ? FOR UPDATE", s.what)
		wait(w.ctx, s.lasts)
		return err
	})
}

// deadlocks repeatedly locks campaigns' rows in the opposite order of Dibs.
func deadlocks(w *world, s *injection) error {
	for till := time.Now().Add(s.lasts); time.Now().Before(till) && w.ctx.Err() == nil; {
		_ = w.stranger(func(ctx context.Context, tx *sql.Tx) error { // it may be the victim
			for _, l := range slices.Backward(w.inForce) {
				query := "SELECT id FROM lots WHERE id = ? FOR UPDATE"
				if _, err := tx.ExecContext(ctx, query, l.id); err != nil {
					return err
				}
				wait(w.ctx, 10*time.Millisecond)
			}
			return nil
		})
	}
	return nil
}

// stranger runs a transaction that changes nothing.
func (w *world) stranger(do func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(w.ctx, healWithin)
	defer cancel()
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return wrap(err)
	}
	defer func() { _ = tx.Rollback() }()
	return wrap(do(ctx, tx))
}

func (w *world) each(ctx context.Context, query string, args []any, take func(scan func(...any) error) error) error {
	rows, err := w.db.QueryContext(ctx, query, args...)
	if err != nil {
		return wrap(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := take(rows.Scan); err != nil {
			return wrap(err)
		}
	}
	return wrap(rows.Err())
}

// strings returns a query's first column.
func (w *world) strings(query string, args ...any) (all []string, err error) {
	err = w.each(w.ctx, query, args, func(scan func(...any) error) error {
		var one string
		err := scan(&one)
		all = append(all, one)
		return err
	})
	return all, err
}
