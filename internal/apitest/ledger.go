package apitest

import (
	"context"
	"iter"
	"time"

	"dibs/models"
	"dibs/models/calendar"
)

// Ledger is an empty ledger.
type Ledger struct{}

// Page has no events.
func (Ledger) Page(context.Context, string, models.LedgerPlace, int) ([]models.Event, time.Time, error) {
	return nil, time.Time{}, nil
}

// All has no events.
func (Ledger) All(context.Context, string, models.LedgerPlace) (iter.Seq2[*models.Event, error], error) {
	return func(func(*models.Event, error) bool) {}, nil
}

// Settle returns an empty settlement.
func (Ledger) Settle(context.Context, calendar.Day) (models.Settlement, error) {
	return models.Settlement{Missing: []models.SettlementMissing{}, Sums: []models.SettlementSum{}}, nil
}
