package lab

import (
	"context"
	"database/sql"
)

// conditionalUpdate lets the UPDATE itself decide: its WHERE holds the rule, its count of rows is the answer. The user's
// row comes first and the stock's, which all want, last, so that it is held for as short as can be.
type conditionalUpdate struct{ counter }

func conditionalUpdateStrategy() Entry {
	return Entry{
		Name: "conditional-update", Title: "MySQL conditional UPDATE", Flaw: "one commit after another on one row",
		Sound: true, DieAt: StepWritten,
		New: func(env Env) (Strategy, error) { return &conditionalUpdate{counter{env}}, nil },
	}
}

// Prepare writes the row.
func (s *conditionalUpdate) Prepare(ctx context.Context) error { return s.prepareRow(ctx) }

// Claim counts for the user, then takes a unit, in one transaction.
func (s *conditionalUpdate) Claim(ctx context.Context, user string) (Outcome, error) {
	return s.transact(ctx, func(ctx context.Context, tx *sql.Tx) (Outcome, error) {
		counted, err := s.countFor(ctx, tx, user)
		if err != nil || !counted {
			return OverLimit, err
		}
		taken, err := takeOne(ctx, tx, s.Campaign.ID)
		if err != nil || !taken {
			return SoldOut, err
		}
		return Claimed, s.at(StepWritten)
	})
}
