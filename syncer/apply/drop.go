package apply

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/adder"

	"github.com/google/uuid"
)

// dropUnanswered deletes unanswered claims whose units are sold to others.
//
// A Redis that was rolled back sells units again until the loss is
// detected. In mode mysql a claim is answered only after its row is
// committed, so it may still be refused. Without a loss in Redis the
// lot has the units of every claim.
func (a *application) dropUnanswered() error {
	var dropped []*event.Raw
	for lot, awaited := range a.awaited() {
		free := a.freeBut(lot)
		for _, r := range awaited {
			if r.Quantity <= free {
				free -= r.Quantity
				continue
			}
			dropped = append(dropped, r)
		}
	}
	return a.drop(dropped)
}

func (a *application) drop(rows []*event.Raw) error {
	if len(rows) == 0 {
		return nil
	}
	ids := make(map[string]bool)
	byLot := make(map[adder.Lot][]string)
	for _, r := range rows {
		ids[r.ID] = true
		byLot[adder.LotOf(&r.Event)] = append(byLot[adder.LotOf(&r.Event)], r.ID)
	}
	if err := a.remove(ids); err != nil {
		return err
	}
	for lot, ids := range byLot {
		if err := a.publishDropped(lot, ids); err != nil {
			return err
		}
	}
	a.Dropped += len(rows)
	return nil
}

// awaited returns the inserted claims that
// are not answered yet, by lot, oldest first.
func (a *application) awaited() map[adder.Lot][]*event.Raw {
	all := make(map[adder.Lot][]*event.Raw)
	for _, r := range a.written {
		if r.IsAwaited() {
			lot := adder.LotOf(&r.Event)
			all[lot] = append(all[lot], r)
		}
	}
	for _, rows := range all {
		slices.SortFunc(rows, func(x, y *event.Raw) int {
			return cmp.Or(cmp.Compare(x.Epoch, y.Epoch), cmp.Compare(x.Seq, y.Seq))
		})
	}
	return all
}

// freeBut returns the units that a lot has for unanswered claims. It
// includes those that this flush credits, adds or releases, without those
// that it moves to another shard. A lowered total may take claimed ones.
func (a *application) freeBut(lot adder.Lot) int64 {
	free := a.lots[lot].Free
	for _, r := range a.moves {
		switch {
		case adder.LotOf(&r.Event) != lot:
		case r.Type == event.UnitsCredited:
			free += r.Quantity
		case r.Peer > 0:
			free -= r.Quantity
		}
	}
	for e, packets := range a.added {
		if adder.LotOf(&e.Event) == lot {
			free += packets
		}
	}
	if released := a.released[lot]; released != nil {
		free += released.Units
	}
	for _, r := range a.written {
		if adder.LotOf(&r.Event) == lot && !r.IsAwaited() {
			free -= r.Quantity
		}
	}
	return free
}

// publishDropped adds the event for readers of the stream to the outbox.
func (a *application) publishDropped(lot adder.Lot, ids []string) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	now := a.clock.Now()
	e := event.Event{
		V: event.Version, Type: event.ClaimsDropped, ID: id.String(), CampaignID: lot.CampaignID, Shard: lot.Shard,
		At: models.NewTime(now), IDs: ids,
	}
	payload, err := json.Marshal(&e)
	if err != nil {
		return err
	}
	err = a.tx.Create(&stored.OutboxRow{
		ID: e.ID, LotID: lot.ID(), Kind: stored.OutboxEvent, Payload: payload, CreatedAt: e.At.Time,
	}).Error
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}
