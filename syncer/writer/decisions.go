package writer

import (
	"cmp"
	"slices"

	"dibs/internal/ledger"
	"dibs/internal/sqlstore"
	"dibs/models"
)

// decide applies decisions that the outbox has brought to Redis: they enter the ledger,
// and released units leave the counters. A decision without a row in the outbox
// was applied before, or a restored MySQL has lost it.
func (a *application) decide() error {
	if err := a.readOutbox(); err != nil {
		return err
	}
	claims, err := a.readForgotten()
	if err != nil {
		return err
	}
	for _, e := range a.b.told {
		isWaiting, isKnown := a.inOutbox[e.ID]
		switch {
		case isWaiting:
			a.inOutbox[e.ID] = false
			a.book(e)
		case isKnown: // a duplicate
		case e.IsDecision():
			if err := a.decideAgain(e, claims); err != nil {
				return err
			}
		}
	}
	return ledger.Put(a.ctx, a.tx, a.booked)
}

// book adds an event to the ledger and the counters.
func (a *application) book(e *models.RawEvent) {
	a.booked = append(a.booked, e.Event)
	if e.Type == models.EventClaimReleased {
		a.released = addRelease(a.released, e)
	}
}

func (a *application) readOutbox() error {
	a.inOutbox = make(map[string]bool)
	for some := range slices.Chunk(a.b.told, sqlstore.PageSize) {
		ids := sqlstore.Keys(some, func(e **models.RawEvent) string { return (*e).ID })
		query := "SELECT id FROM outbox WHERE id IN " + sqlstore.Marks(len(ids))
		err := sqlstore.ScanAll(a.ctx, a.tx, query, sqlstore.Args(ids), func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			a.inOutbox[id] = true
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// confirm deletes applied events from the outbox.
func (a *application) confirm() error {
	for some := range slices.Chunk(a.b.told, sqlstore.PageSize) {
		ids := sqlstore.Keys(some, func(e **models.RawEvent) string { return (*e).ID })
		_, err := sqlstore.Exec(a.ctx, a.tx, "DELETE FROM outbox WHERE id IN "+sqlstore.Marks(len(ids)), sqlstore.Args(ids)...)
		if err != nil {
			return err
		}
	}
	return nil
}

type decidedClaim struct {
	made    int64 // decisions
	status  models.ClaimStatus
	orderID string
}

// fits reports whether a decision may follow.
// One of a lost history, after a decision that lost, may not.
func (c *decidedClaim) fits(e *models.RawEvent) bool {
	if e.Type == models.EventClaimReopened {
		return c.status == models.ClaimRedeemed && c.orderID == e.OrderID
	}
	return c.status == models.ClaimClaimed
}

// readForgotten locks and reads the claims of decisions that are not in the outbox.
func (a *application) readForgotten() (claims map[string]*decidedClaim, err error) {
	claims = make(map[string]*decidedClaim)
	var ids []string
	for _, e := range a.b.told {
		if e.IsDecision() && !a.inOutbox[e.ID] {
			ids = append(ids, e.ClaimID)
		}
	}
	for some := range slices.Chunk(ids, sqlstore.PageSize) {
		query := "SELECT id, COALESCE(decisions, 0), status, COALESCE(order_id, '') FROM claims" +
			" WHERE packet_id IS NULL AND id IN " + sqlstore.Marks(len(some)) + sqlstore.ForUpdate(a.tx)
		err := sqlstore.ScanAll(a.ctx, a.tx, query, sqlstore.Args(some), func(scan func(...any) error) error {
			var id string
			var c decidedClaim
			err := scan(&id, &c.made, &c.status, &c.orderID)
			claims[id] = &c
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// decideAgain applies a decision that a restored MySQL has lost.
// If MySQL has since made another one of its number, the first in the stream wins.
func (a *application) decideAgain(e *models.RawEvent, claims map[string]*decidedClaim) error {
	c := claims[e.ClaimID]
	if c == nil {
		return nil
	}
	number := max(1, e.Decision)
	counts := number > c.made && c.fits(e)
	if number <= c.made {
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
	if _, err := WriteDecision(a.tx, &again, []string{e.ClaimID}, false); err != nil {
		return err
	}
	c.made = number
	c.status, c.orderID = statusAfter(&e.Event)
	a.book(e)
	return nil
}

// refuse reloads a lot if Redis freed units of a claim that is not released.
func (a *application) refuse(e *models.RawEvent, c *decidedClaim) error {
	if e.Type != models.EventClaimReleased || c.status == models.ClaimReleased || c.status == models.ClaimExpired {
		return nil
	}
	return a.reload(e.LotID())
}

func (a *application) reload(lotID string) error {
	_, err := sqlstore.Exec(a.ctx, a.tx, "UPDATE lots SET reload_upto = epoch WHERE id = ?", lotID)
	return err
}

// dropFrom deletes a claim's unconfirmed decisions from a number on, and reports whether
// there were any. Redis may have applied them, so the lot is reloaded.
func (a *application) dropFrom(e *models.RawEvent, number int64) (dropped bool, err error) {
	var ids []string
	var others []models.Event
	// A locking read sees commits after this transaction began, as that of the claim did.
	query := "SELECT id, payload FROM outbox WHERE campaign_id = ? AND claim_id = ?" + sqlstore.ForUpdate(a.tx)
	err = sqlstore.ScanAll(a.ctx, a.tx, query, []any{e.LotID(), e.ClaimID},
		func(scan func(...any) error) error {
			var id string
			var payload []byte
			if err := scan(&id, &payload); err != nil {
				return err
			}
			if isWaiting, isKnown := a.inOutbox[id]; isKnown && !isWaiting { // this batch has applied it
				return nil
			}
			other, err := models.DecodeEvent(payload)
			if err == nil && id != e.ID && max(1, other.Decision) >= number {
				ids = append(ids, id)
				others = append(others, other)
			}
			return nil // the relay reports unreadable rows
		})
	if err != nil || len(ids) == 0 {
		return false, err
	}
	_, err = sqlstore.Exec(a.ctx, a.tx, "DELETE FROM outbox WHERE id IN "+sqlstore.Marks(len(ids)), sqlstore.Args(ids)...)
	slices.SortFunc(others, func(x, y models.Event) int { return cmp.Compare(y.Decision, x.Decision) }) // the last first
	for i := range others {
		if err == nil {
			err = undoBeside(a.tx, &others[i])
		}
	}
	if err == nil {
		err = a.reload(e.LotID())
	}
	for _, id := range ids {
		delete(a.inOutbox, id) // its entry may follow the winner in the stream
	}
	return true, err
}

func addRelease(deltas []delta, e *models.RawEvent) []delta {
	id := e.LotID()
	at := slices.IndexFunc(deltas, func(d delta) bool { return d.LotID == id })
	if at < 0 {
		at = len(deltas)
		deltas = append(deltas, delta{LotID: id})
	}
	deltas[at].Units -= e.Quantity
	deltas[at].Released++
	return deltas
}
