package apitest

import (
	"context"
	"iter"
	"time"

	"dibs/models/calendar"
	"dibs/models/event"
)

// Ledger is an empty ledger.
type Ledger struct{}

// Page has no events.
func (Ledger) Page(context.Context, string, event.Place, int) ([]event.Event, time.Time, error) {
	return nil, time.Time{}, nil
}

// All has no events.
func (Ledger) All(context.Context, string, event.Place) (iter.Seq2[*event.Event, error], error) {
	return func(func(*event.Event, error) bool) {}, nil
}

// Settle returns an empty settlement.
func (Ledger) Settle(context.Context, calendar.Day) (event.Settlement, error) {
	return event.Settlement{Missing: []event.SettlementMissing{}, Sums: []event.SettlementSum{}}, nil
}
