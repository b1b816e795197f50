package writer

import (
	"context"
	"errors"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// errRefused reports that MySQL refused a row of an all-or-nothing write.
var errRefused = errors.New("writer: MySQL refuses a claim")

// Write writes events that are in no stream,
// all or none. Errors: see FailureOf.
func Write(ctx context.Context, db *gorm.DB, events ...models.Event) error {
	rows := rowsOf(events)
	s := newStore(db, defaultTuning())
	return sqlstore.Retry(ctx, func() error {
		_, err := s.apply(ctx, &batch{rows: rows, sums: sumOf(rows), whole: true})
		return err
	})
}

func rowsOf(events []models.Event) []*models.RawEvent {
	rows := make([]*models.RawEvent, len(events))
	for i := range events {
		rows[i] = &models.RawEvent{Event: events[i]}
	}
	slices.SortFunc(rows, byID)
	return rows
}

// FailureOf classifies an error of a write. A
// claim that contradicts MySQL is FailureData.
func FailureOf(err error) sqlstore.Failure {
	if errors.Is(err, errPacketTaken) || errors.Is(err, errRefused) {
		return sqlstore.FailureData
	}
	return sqlstore.FailureOf(err)
}
