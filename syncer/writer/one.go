package writer

import (
	"context"
	"database/sql"
	"log/slog"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// WriteOne writes one event by itself, as a flush does. Errors: see FailureOf.
func WriteOne(ctx context.Context, db *gorm.DB, log *slog.Logger, e models.Event, payload []byte) error {
	w, err := unstarted(Config{DB: db, Logger: log}.WithDefaults()) // not started: it commits, that is all
	if err != nil {
		return err
	}
	one := []*row{{event: e, payload: payload}}
	return sqlstore.Retry(ctx, func() error { return w.commit(ctx, one, sumOf(one)) })
}

// InsertOne puts the row of a claim into claims and gives its packet to its user. The books are left as they are. Errors: see
// FailureOf.
func InsertOne(ctx context.Context, tx *sql.Tx, dialect string, e *models.Event) error {
	one := []*row{{event: *e}}
	if err := insertClaims(ctx, tx, dialect, one, sqlstore.Now()); err != nil {
		return err
	}
	return setOwners(ctx, tx, dialect, one)
}

// OwnPackets gives the packets of claims, whose rows are there already, to their users. Errors: see FailureOf.
func OwnPackets(ctx context.Context, tx *sql.Tx, dialect string, claims []models.Event) error {
	rows := make([]*row, len(claims))
	for i := range claims {
		rows[i] = &row{event: claims[i]}
	}
	return setOwners(ctx, tx, dialect, rows)
}

// WriteFailureOf tells what can be done about an error of a write: a claim that contradicts what MySQL holds cannot be stored.
func FailureOf(err error) sqlstore.Failure {
	if isConflict(err) {
		return sqlstore.FailureData
	}
	return sqlstore.FailureOf(err)
}
