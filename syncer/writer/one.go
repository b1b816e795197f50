package writer

import (
	"context"
	"errors"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// errRefused says that MySQL refused a row of a write that is all or nothing.
var errRefused = errors.New("writer: MySQL refuses a claim")

// Write writes events that are in no stream, as a flush does, but all of them or none. Errors: see FailureOf.
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

// Park parks an event, with its payload, if it is not parked yet.
func Park(ctx context.Context, db *gorm.DB, e *models.Event, payload []byte, reason string) error {
	parked := parkedEvent(&models.RawEvent{Event: *e, Payload: payload}, reason)
	return sqlstore.Retry(ctx, func() error { return insertParked(ctx, db.ConnPool, db.Name(), &parked, sqlstore.Now()) })
}

// FailureOf reports what can be done about an error of a write. A claim that contradicts what MySQL holds is FailureData.
func FailureOf(err error) sqlstore.Failure {
	if errors.Is(err, errPacketTaken) || errors.Is(err, errRefused) {
		return sqlstore.FailureData
	}
	return sqlstore.FailureOf(err)
}
