package writer

import (
	"context"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// Write writes events as a flush does: all of them or none. Errors: see FailureOf.
func Write(ctx context.Context, db *gorm.DB, events ...models.Event) error {
	s := &store{db: db, tuning: Config{}.tuning()}
	rows := rowsOf(events)
	return sqlstore.Retry(ctx, func() error { return s.commit(ctx, false, rows, sumOf(rows)) })
}

// InsertMissing inserts the rows of claims of one lot, their row of stock_flushes, and gives their packets to their users. It does not
// move the counters of the lot. Errors: see FailureOf.
func InsertMissing(ctx context.Context, tx *sqlstore.Tx, events []models.Event) error {
	rows := rowsOf(events)
	now := sqlstore.Now()
	if err := insertClaims(ctx, tx, rows, now); err != nil {
		return err
	}
	sums := sumOf(rows)
	holdForMs, err := holdsOf(ctx, tx, sums)
	if err != nil {
		return err
	}
	if _, err := insertFlushes(ctx, tx, sums, holdForMs, 0, now); err != nil {
		return err
	}
	return setOwners(ctx, tx, rows)
}

// PutOrder notes which order redeemed a claim, in the transaction that redeems it.
func PutOrder(ctx context.Context, tx sqlstore.Execer, orderID, claimID string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO claim_orders (order_id, claim_id) VALUES (?, ?)", orderID, claimID)
	return err
}

// OwnPackets gives the packets of claims, whose rows exist already, to their users. Errors: see FailureOf.
func OwnPackets(ctx context.Context, tx *sqlstore.Tx, claims []models.Event) error {
	return setOwners(ctx, tx, rowsOf(claims))
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

// FailureOf reports what can be done about an error of a write. A claim that contradicts what MySQL holds is FailureData.
func FailureOf(err error) sqlstore.Failure {
	if isConflict(err) {
		return sqlstore.FailureData
	}
	return sqlstore.FailureOf(err)
}
