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
	"dibs/syncer/campaigns"
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

// expire ends holds in one transaction, and applies that to Redis. Somebody may have redeemed or released some of them meanwhile.
func (e *Expirer) expire(ctx context.Context, due []openHold) (expired int, err error) {
	var rows []models.OutboxRow
	err = apart(due, (*openHold).campaignID, func(part []openHold) error {
		decided, err := e.decide(ctx, part)
		rows = append(rows, decided...)
		return err
	})
	if len(rows) == 0 {
		return 0, err
	}
	e.steps.At("committed")
	e.expired.Add(float64(len(rows)))
	_, applyErr := e.relay.Apply(ctx, rows) // the relay tries again
	return len(rows), errors.Join(err, applyErr)
}

// decide is the transaction, for those of the claims that are undecided still.
func (e *Expirer) decide(ctx context.Context, due []openHold) (rows []models.OutboxRow, err error) {
	at := sqlstore.Now()
	err = e.inTx(ctx, func(tx *sql.Tx) error {
		rows = nil
		claims, err := e.lock(ctx, tx, due)
		if err != nil || len(claims) == 0 {
			return err
		}
		args := []any{string(models.ClaimExpired), at.Format(sqlstore.TimeLayout)}
		for i := range claims {
			c := &claims[i]
			c.ResolvedAt = &at
			row, err := resolutionRow(c, &decision{status: models.ClaimExpired})
			if err != nil {
				return sqlstore.Final(err)
			}
			rows, args = append(rows, row), append(args, c.ID)
		}
		query := "UPDATE claims SET status = ?, resolved_at = ? WHERE id IN " + sqlstore.Marks(len(claims)) //nolint:gosec // question marks only
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return err
		}
		e.steps.At("claims moved")
		if err := campaigns.PutOutbox(ctx, tx, rows); err != nil {
			return err
		}
		if err := moveBack(ctx, tx, e.relay.db.Name(), claims); err != nil {
			return err
		}
		e.steps.At("books moved")
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("resolve: expire: %w", err)
	}
	return rows, nil
}

// lock locks those of the claims that are undecided, in order of their ids.
func (e *Expirer) lock(ctx context.Context, tx *sql.Tx, due []openHold) (claims []models.ClaimRow, err error) {
	query := "SELECT id, campaign_id, shard, user_id, key_digest, seq, quantity, claimed_at FROM claims" +
		" WHERE id IN " + sqlstore.Marks(len(due)) +
		" AND status = ? ORDER BY id" + sqlstore.ForUpdate(e.relay.db.Name())
	args := make([]any, 0, len(due)+1)
	for i := range due {
		args = append(args, due[i].ID)
	}
	err = sqlstore.ScanAll(ctx, tx, query, append(args, string(models.ClaimClaimed)), func(scan func(...any) error) error {
		var c models.ClaimRow
		err := scan(&c.ID, &c.CampaignID, &c.Shard, &c.UserID, &c.KeyDigest, &c.Seq, &c.Quantity, &c.ClaimedAt)
		claims = append(claims, c)
		return err
	})
	return claims, err
}
