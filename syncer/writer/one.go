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
const lookAtHolds = "UPDATE campaigns SET settled_seq = 0, holds_mixed = holds_mixed + 1," +
	" next_due_ms = 0 WHERE id = ? AND hold_for_ms > 0"

// InsertOne inserts the row of a claim and gives its packet to its user. It does not move the counters of the campaign. Errors:
// see FailureOf.
func InsertOne(ctx context.Context, tx *sql.Tx, dialect string, e *models.Event) error {
	one := []*row{{event: *e}}
	if err := insertClaims(ctx, tx, dialect, one, sqlstore.Now()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, lookAtHolds, e.CampaignID); err != nil {
		return err
	}
	return setOwners(ctx, tx, dialect, one)
}

// OwnPackets gives the packets of claims, whose rows exist already, to their users. Errors: see FailureOf.
func OwnPackets(ctx context.Context, tx *sql.Tx, dialect string, claims []models.Event) error {
	rows := make([]*row, len(claims))
	for i := range claims {
		rows[i] = &row{event: claims[i]}
	}
	return setOwners(ctx, tx, dialect, rows)
}

// FailureOf tells what can be done about an error of a write. A claim that contradicts what MySQL holds is FailureData.
func FailureOf(err error) sqlstore.Failure {
	if isConflict(err) {
		return sqlstore.FailureData
	}
	return sqlstore.FailureOf(err)
}
