package apply

import (
	"cmp"
	"slices"

	"dibs/internal/ledger"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/adder"
	"dibs/syncer/tables"

	"gorm.io/gorm/clause"
)

// decide applies decisions that Redis got from the outbox. They enter the
// ledger, and released units leave the counters. A decision without a row in
// the outbox was applied before, or a restored MySQL has lost it.
func (a *application) decide() error {
	claims, err := a.readForgotten()
	if err != nil {
		return err
	}
	for _, e := range a.b.events {
		isWaiting, isKnown := a.inOutbox[e.ID]
		switch {
		case isWaiting && e.Type != event.CampaignClosed:
			a.inOutbox[e.ID] = false
			a.book(e)
		case isKnown && !isWaiting: // a duplicate
		case e.IsDecision():
			if err := a.decideAgain(e, claims); err != nil {
				return err
			}
		case e.Type == event.ClaimsGivenUp, e.Type == event.CampaignClosed:
			if err := a.bookAgain(e); err != nil {
				return err
			}
		}
	}
	return ledger.Put(a.ctx, a.tx, a.booked)
}

func (a *application) book(e *event.Raw) {
	a.booked = append(a.booked, e.Event)
	if e.Type == event.ClaimReleased {
		a.released.Of(adder.LotOf(&e.Event)).Merge(&adder.Tally{Units: e.Quantity, Claims: 1})
	}
}

// bookAgain books an event of no claim, unless the ledger has it: at its
// time or later.
func (a *application) bookAgain(e *event.Raw) error {
	var known int64
	err := a.tx.Table("ledger_events").Where("campaign_id = ? AND at >= ? AND id = ?", e.CampaignID, e.At.Time, e.ID).
		Count(&known).Error
	a.inOutbox[e.ID] = false // another entry may have it, too
	if err == nil && known == 0 {
		a.book(e)
	}
	return err
}

func (a *application) readOutbox() error {
	a.inOutbox = make(map[string]bool)
	for some := range slices.Chunk(a.b.events, sqlstore.PageSize) {
		var waiting []string
		if err := a.tx.Model(&stored.OutboxRow{}).Where("id IN ?", idsOf(some)).Pluck("id", &waiting).Error; err != nil {
			return err
		}
		for _, id := range waiting {
			a.inOutbox[id] = true
		}
	}
	return nil
}

func (a *application) confirm() error {
	for some := range slices.Chunk(a.b.events, sqlstore.PageSize) {
		if err := a.tx.Where("id IN ?", idsOf(some)).Delete(&stored.OutboxRow{}).Error; err != nil {
			return err
		}
	}
	return nil
}

func idsOf(events []*event.Raw) []string {
	return sqlstore.Keys(events, func(e **event.Raw) string { return (*e).ID })
}

type decidedClaim struct {
	ID      string
	Made    int64 // decisions
	Status  models.ClaimStatus
	OrderID string
}

// fits reports whether a decision may follow. A decision of a lost
// history, after one that lost, may not.
func (c *decidedClaim) fits(e *event.Raw) bool {
	if e.Type == event.ClaimReopened {
		return c.Status == models.ClaimRedeemed && c.OrderID == e.OrderID
	}
	return c.Status == models.ClaimClaimed
}

// readForgotten locks and reads the claims
// of decisions that are not in the outbox.
func (a *application) readForgotten() (claims map[string]*decidedClaim, err error) {
	claims = make(map[string]*decidedClaim)
	var ids []string
	for _, e := range a.b.events {
		if e.IsDecision() && !a.inOutbox[e.ID] {
			ids = append(ids, e.ClaimID)
		}
	}
	for some := range slices.Chunk(ids, sqlstore.PageSize) {
		var rows []*decidedClaim
		err := a.tx.Table("claims").Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
			Select("id, COALESCE(decisions, 0) AS made, status, COALESCE(order_id, '') AS order_id").
			Where("packet_id IS NULL AND id IN ?", some).Scan(&rows).Error
		if err != nil {
			return nil, err
		}
		for _, c := range rows {
			claims[c.ID] = c
		}
	}
	return claims, nil
}

// decideAgain applies a decision that a restored MySQL has lost. If MySQL has
// since made another one with its number, the first in the stream wins.
func (a *application) decideAgain(e *event.Raw, claims map[string]*decidedClaim) error {
	c := claims[e.ClaimID]
	if c == nil {
		return nil
	}
	number := max(1, e.Decision)
	counts := number > c.Made && c.fits(e)
	if number <= c.Made {
		var err error
		counts, err = a.dropFrom(e, number)
		if err != nil {
			return err
		}
	}
	if !counts {
		return a.refuse(e, c)
	}
	again := e.Event
	again.Decision = number
	if _, err := tables.Decide(a.tx, &again, []string{e.ClaimID}, false); err != nil {
		return err
	}
	c.Made = number
	c.Status, c.OrderID = tables.StatusAfter(&e.Event)
	a.book(e)
	return nil
}

// refuse reloads a lot if Redis freed units of a claim that is not released.
func (a *application) refuse(e *event.Raw, c *decidedClaim) error {
	if e.Type != event.ClaimReleased || c.Status == models.ClaimReleased || c.Status == models.ClaimExpired {
		return nil
	}
	return a.reload(e.LotID())
}

func (a *application) reload(lotID string) error {
	return a.tx.Exec("UPDATE lots SET reload_upto = epoch WHERE id = ?", lotID).Error
}

// dropFrom deletes a claim's unconfirmed decisions from
// a number on, and reports whether there were any.
// Redis may have applied them, so the lot is reloaded.
func (a *application) dropFrom(e *event.Raw, number int64) (dropped bool, err error) {
	var rows []stored.OutboxRow
	// A locking read sees commits after the start of this transaction,
	// as that of the claim did.
	err = a.tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
		Where("campaign_id = ? AND claim_id = ?", e.LotID(), e.ClaimID).Find(&rows).Error
	if err != nil {
		return false, err
	}
	var others []event.Event
	for i := range rows {
		id := rows[i].ID
		// this batch has applied it
		if isWaiting, isKnown := a.inOutbox[id]; isKnown && !isWaiting {
			continue
		}
		other, err := event.Decode(rows[i].Payload)
		if err != nil { // the relay reports it
			continue
		}
		if id != e.ID && max(1, other.Decision) >= number {
			other.ID = id
			others = append(others, other)
		}
	}
	// the last first
	slices.SortFunc(others, func(x, y event.Event) int { return cmp.Compare(y.Decision, x.Decision) })
	for i := range others {
		if err := a.tx.Delete(&stored.OutboxRow{ID: others[i].ID}).Error; err != nil {
			return false, err
		}
		if err := tables.UndoBeside(a.tx, &others[i]); err != nil {
			return false, err
		}
		delete(a.inOutbox, others[i].ID) // its entry may follow the winner in the stream
	}
	if len(others) == 0 {
		return false, nil
	}
	return true, a.reload(e.LotID())
}
