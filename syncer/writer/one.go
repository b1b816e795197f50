package writer

import (
	"context"
	"database/sql"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// WriteOne writes one event by itself, as a flush does. Errors: see FailureOf.
func WriteOne(ctx context.Context, db *gorm.DB, e models.Event) error {
	s := &store{db: db, tuning: Config{}.tuning()}
	one := []*row{{event: e}}
	return sqlstore.Retry(ctx, func() error { return s.commit(ctx, false, one, sumOf(one)) })
}

// lookAtHolds has the expirer look at all claims of a campaign of which one came otherwise than by a flush. holds_mixed gets a value
// that it did not have, so that a look that goes on meanwhile stores nothing.
func lookAtHolds(id string) string {
	return "UPDATE " + models.BooksTable(id) + " SET settled_seq = 0, holds_mixed = holds_mixed + 1," +
		" next_due_ms = 0 WHERE id = ? AND hold_for_ms > 0"
}

// InsertMissing inserts the rows of claims of one campaign and gives their packets to their users. It does not move the counters of
// the campaign. Errors: see FailureOf.
func InsertMissing(ctx context.Context, tx *sql.Tx, dialect string, events []models.Event) error {
	rows := rowsOf(events)
	if err := insertClaims(ctx, tx, dialect, rows, sqlstore.Now()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, lookAtHolds(events[0].LotID()), events[0].LotID()); err != nil {
		return err
	}
	return setOwners(ctx, tx, dialect, rows)
}

// OwnPackets gives the packets of claims, whose rows exist already, to their users. Errors: see FailureOf.
func OwnPackets(ctx context.Context, tx *sql.Tx, dialect string, claims []models.Event) error {
	return setOwners(ctx, tx, dialect, rowsOf(claims))
}

func rowsOf(events []models.Event) []*row {
	rows := make([]*row, len(events))
	for i := range events {
		rows[i] = &row{event: events[i]}
	}
	return rows
}

// Park parks an event, with its payload, if it is not parked yet.
func Park(ctx context.Context, db *gorm.DB, e *models.Event, payload []byte, reason string) error {
	parked := parkedEvent(&row{event: *e, payload: payload}, reason)
	return sqlstore.Retry(ctx, func() error { return insertParked(ctx, db, &parked, sqlstore.Now()) })
}

// FailureOf tells what can be done about an error of a write. A claim that contradicts what MySQL holds is FailureData.
func FailureOf(err error) sqlstore.Failure {
	if isConflict(err) {
		return sqlstore.FailureData
	}
	return sqlstore.FailureOf(err)
}
