package resolve

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// heldMove is what a campaign's place is to become.
type heldMove struct {
	was *heldCampaign
	to  heldPlace
}

func (m *heldMove) id() string         { return m.was.ID }
func (h *openHold) campaignID() string { return models.ShardID(h.CampaignID, h.Shard) }

// move stores where the holds of campaigns are, unless a campaign changed meanwhile. again is true when some of them may be due at
// the place to which it moved.
func (e *Expirer) move(ctx context.Context, moves []heldMove, now time.Time) (again bool, err error) {
	err = apart(moves, (*heldMove).id, func(part []heldMove) error {
		query, args := moveQuery(part)
		var n int64
		err := e.inTx(ctx, func(tx *sql.Tx) (err error) {
			n, err = sqlstore.Exec(ctx, tx, query, args...)
			return err
		})
		isDue := func(m heldMove) bool { return m.to.NextDueMs <= now.UnixMilli() }
		again = again || err == nil && n > 0 && slices.ContainsFunc(part, isDue)
		return err
	})
	if err != nil {
		return again, fmt.Errorf("resolve: note when holds end: %w", err)
	}
	return again, nil
}

// moveQuery stores a place only where it is as it was read. Claims that came since then may stand anywhere behind settled_seq, which
// stays then, but are not due before those that were found, if there were any.
func moveQuery(moves []heldMove) (query string, args []any) {
	column := func(value func(m *heldMove) any) string { return caseOf(&args, moves, (*heldMove).id, value) }
	isSame := func() string { return "synced_seq = " + column(func(m *heldMove) any { return m.was.SyncedSeq }) }
	query = "UPDATE " + models.BooksTable(moves[0].was.ID) + " SET settled_seq = CASE WHEN " + isSame() +
		" THEN " + column(func(m *heldMove) any { return m.to.SettledSeq }) + " ELSE settled_seq END" +
		", holds_mixed = " + column(func(m *heldMove) any { return m.to.HoldsMixed }) +
		", next_due_ms = CASE WHEN " + isSame() + " THEN " + column(func(m *heldMove) any { return orNull(m.to.NextDueMs) }) +
		" ELSE COALESCE(" + column(func(m *heldMove) any { return orNull(m.to.NextDueMs) }) + ", next_due_ms) END"
	for i := range moves {
		args = append(args, moves[i].was.ID)
	}
	query += " WHERE id IN " + sqlstore.Marks(len(moves)) +
		" AND holds_mixed = " + column(func(m *heldMove) any { return m.was.Place.HoldsMixed }) +
		" AND settled_seq = " + column(func(m *heldMove) any { return m.was.Place.SettledSeq }) +
		" AND next_due_ms = " + column(func(m *heldMove) any { return m.was.Place.NextDueMs })
	return query, args
}

func orNull(ms int64) any {
	if ms == never {
		return nil
	}
	return ms
}

// caseOf is an SQL expression that has a value for each campaign of an UPDATE.
func caseOf[T any](args *[]any, of []T, id func(*T) string, value func(*T) any) string {
	for i := range of {
		*args = append(*args, id(&of[i]), value(&of[i]))
	}
	return "CASE id" + strings.Repeat(" WHEN ? THEN ?", len(of)) + " END"
}

// apart does something for all of what it is given, in order of campaigns. If that meets the lock of somebody else, it does it for
// each campaign by itself, so that the others are done.
func apart[T any](all []T, campaignOf func(*T) string, do func(part []T) error) error {
	if len(all) == 0 {
		return nil
	}
	err := do(all)
	if !sqlstore.IsLockWait(err) {
		return err
	}
	var failed []error
	for len(all) > 0 {
		id, n := campaignOf(&all[0]), 1
		for n < len(all) && campaignOf(&all[n]) == id {
			n++
		}
		if err := do(all[:n]); err != nil && len(failed) < sqlstore.PageSize {
			failed = append(failed, fmt.Errorf("campaign %s: %w", id, err))
		}
		all = all[n:]
	}
	return errors.Join(failed...)
}

// inTx tries a transaction again, but not after it waited in vain for a lock.
func (e *Expirer) inTx(ctx context.Context, change func(tx *sql.Tx) error) error {
	return sqlstore.Retry(ctx, func() error {
		err := sqlstore.InTxBrief(ctx, e.relay.db, change)
		if sqlstore.IsLockWait(err) {
			return sqlstore.Final(err)
		}
		return err
	})
}

// expire ends holds, and applies that to Redis. Some of them may have been redeemed or released since they were found.
func (e *Expirer) expire(ctx context.Context, due []openHold) (expired int, err error) {
	var all []heldClaim
	d := &decision{status: models.ClaimExpired}
	err = apart(due, (*openHold).campaignID, func(part []openHold) error {
		ids := make([]string, len(part))
		for i := range part {
			ids[i] = part[i].ID
		}
		decided, _, err := d.decide(ctx, e.relay.db, ids, &e.steps, func(change func(tx *sql.Tx) error) error { return e.inTx(ctx, change) })
		all = append(all, decided...)
		if err != nil {
			return fmt.Errorf("resolve: expire: %w", err)
		}
		return nil
	})
	if len(all) == 0 {
		return 0, err
	}
	e.steps.At("committed")
	e.expired.Add(float64(len(all)))
	return len(all), errors.Join(err, e.relay.applyDecided(ctx, all)) // what fails the relay tries again
}
