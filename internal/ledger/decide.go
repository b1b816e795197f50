package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"

	"gorm.io/gorm"
)

// boundSetting names the row of settings with the ledger's bound: all
// decisions up to that time are in ledger_events, or will never be made.
const boundSetting = "ledger_upto"

const readBound = "SELECT value FROM settings WHERE name = '" + boundSetting + "'"

func scanBound(row *sql.Row) (time.Time, error) {
	var text string
	if err := row.Scan(&text); err != nil {
		return time.Time{}, fmt.Errorf("ledger: settings.%s: %w", boundSetting, err)
	}
	bound, err := time.Parse(sqlstore.TimeLayout, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("ledger: settings.%s: %w", boundSetting, err)
	}
	return bound, nil
}

// moveBound moves the bound up to a time and returns it. It
// waits for transactions that read an older bound; if one lasts
// too long, the bound stays.
func moveBound(ctx context.Context, db *gorm.DB, upto time.Time) (bound time.Time, err error) {
	bound, err = scanBound(db.WithContext(ctx).Raw(readBound).Row())
	if err != nil || !bound.Before(upto) {
		return bound, err
	}
	text := upto.UTC().Format(sqlstore.TimeLayout)
	err = sqlstore.InTxBrief(ctx, db, func(tx *gorm.DB) error {
		_, err := sqlstore.Exec(ctx, tx, "UPDATE settings SET value = ? WHERE name = ? AND value < ?", text, boundSetting, text)
		return err
	})
	switch {
	case sqlstore.IsLockWait(err):
		return bound, nil
	case err != nil:
		return bound, fmt.Errorf("ledger: settings.%s: %w", boundSetting, err)
	}
	return upto, nil
}

func kept(t event.Type) bool {
	switch t {
	case event.ClaimRedeemed, event.ClaimReleased, event.ClaimReopened, event.ClaimExtended,
		event.ClaimsGivenUp, event.CampaignClosed:
		return true
	default:
		return false
	}
}

const putColumns = "INSERT INTO ledger_events (campaign_id, at, id, type, claims, units, amount, payload) VALUES "

// Put writes the events that a ledger shows, in the transaction that applies
// them. Each keeps its own time, unless that is at or before the bound
// already promised to readers; then it gets the next millisecond. Put holds a
// shared lock until the transaction ends. moveBound waits for it.
func Put(ctx context.Context, tx *gorm.DB, events []event.Event) error {
	events = slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { return !kept(e.Type) })
	if len(events) == 0 {
		return nil
	}
	bound, err := scanBound(tx.Raw(readBound + sqlstore.InShareMode(tx)).Row())
	if err != nil {
		return err
	}
	var args []any
	var rows []byte
	for i := range events {
		e := &events[i]
		if !e.At.After(bound) {
			e.At = models.NewTime(bound.Add(time.Millisecond))
		}
		payload, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		amount := int64(0)
		if e.Amount != nil {
			amount = *e.Amount
		}
		rows = append(rows, "(?, ?, ?, ?, ?, ?, ?, ?),"...)
		args = append(args, e.CampaignID, e.At.UTC().Format(sqlstore.TimeLayout), e.ID, string(e.Type), claimsOf(e), e.Quantity, amount, payload)
	}
	if _, err := sqlstore.Exec(ctx, tx, putColumns+string(rows[:len(rows)-1]), args...); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// claimsOf is the number of claims that an event concerns.
func claimsOf(e *event.Event) int64 {
	if e.ClaimID != "" {
		return 1
	}
	var seqs int64 // includes claims with known ids
	for _, run := range e.Seqs {
		seqs += run[1] - run[0] + 1
	}
	return max(int64(len(e.IDs)), seqs)
}
