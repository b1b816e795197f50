package writer

import (
	"slices"

	"dibs/internal/ledger"
	"dibs/internal/sqlstore"
	"dibs/models"
)

// confirm deletes the rows of the outbox whose events Redis has had, and MySQL has applied now.
func (a *application) confirm() error {
	for some := range slices.Chunk(a.b.told, sqlstore.PageSize) {
		ids := sqlstore.Keys(some, func(e **models.RawEvent) string { return (*e).ID })
		_, err := a.tx.ExecContext(a.ctx, "DELETE FROM outbox WHERE id IN "+sqlstore.Marks(len(ids)), sqlstore.Args(ids)...)
		if err != nil {
			return err
		}
	}
	return nil
}

// decide applies releases and redeems to claims that are undecided here: a MySQL that was restored forgot them. Usually there are none, as
// decisions are made here.
func (a *application) decide() error {
	var ids []string
	decided := slices.DeleteFunc(slices.Clone(a.b.told), func(e *models.RawEvent) bool {
		return e.Type != models.EventClaimReleased && e.Type != models.EventClaimRedeemed
	})
	for _, e := range decided {
		ids = append(ids, e.ClaimID)
	}
	undecided := make(map[string]bool)
	for some := range slices.Chunk(ids, sqlstore.PageSize) {
		query := "SELECT id FROM claims WHERE status = ? AND packet_id IS NULL AND id IN " + sqlstore.Marks(len(some)) + sqlstore.ForUpdate(a.tx)
		args := append([]any{string(models.ClaimClaimed)}, sqlstore.Args(some)...)
		err := sqlstore.ScanAll(a.ctx, a.tx, query, args, func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			undecided[id] = true
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, e := range decided {
		if !undecided[e.ClaimID] {
			continue
		}
		delete(undecided, e.ClaimID)
		if err := a.decideOne(e); err != nil {
			return err
		}
		if e.Type == models.EventClaimReleased {
			a.released = addRelease(a.released, e)
		}
	}
	return nil
}

// decideOne writes what became of a claim.
func (a *application) decideOne(e *models.RawEvent) error {
	status := models.ClaimRedeemed
	reason := ""
	var order *string
	switch {
	case e.Type == models.EventClaimRedeemed:
		order = &e.OrderID
	case e.Reason == models.ReasonExpired:
		status = models.ClaimExpired
	default:
		status = models.ClaimReleased
		reason = e.Reason
	}
	_, err := a.tx.ExecContext(a.ctx, "UPDATE claims SET status = ?, order_id = ?, release_reason = ?, resolved_at = ? WHERE id = ?",
		string(status), order, sqlstore.Cut(reason, models.ReasonLength), e.At.UTC().Format(sqlstore.TimeLayout), e.ClaimID)
	if err == nil && order != nil {
		err = PutOrder(a.ctx, a.tx, *order, e.ClaimID)
	}
	if err != nil {
		return err
	}
	at, err := ledger.Time(a.ctx, a.tx)
	if err != nil {
		return err
	}
	booked := e.Event
	if booked.At.Before(at) {
		booked.At = models.NewTime(at) // what was read of the ledger does not change
	}
	return ledger.Put(a.ctx, a.tx, []*models.Event{&booked})
}

func addRelease(deltas []Delta, e *models.RawEvent) []Delta {
	id := e.LotID()
	at := slices.IndexFunc(deltas, func(d Delta) bool { return d.LotID == id })
	if at < 0 {
		at = len(deltas)
		deltas = append(deltas, Delta{LotID: id})
	}
	deltas[at].Units -= e.Quantity
	deltas[at].Released++
	return deltas
}
