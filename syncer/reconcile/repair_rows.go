package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// eventsAtOnce is how many entries of a stream are read by one call.
const eventsAtOnce = 500

// orphan is an event of a claim that has no row.
type orphan struct {
	entry lua.EntryID
	event models.Event
}

// bringRowsBack goes over the claim stream and writes the rows of claims of a campaign that are not there though the consumers
// acknowledged their events. The counters are left for recount: they may count these claims already.
func (r *Reconciler) bringRowsBack(ctx context.Context, id string) (steps []models.Repair, err error) {
	partition := lua.PartitionOf(id, r.scripts.Partitions())
	unread, err := r.scripts.Unread(ctx, partition, models.GroupSyncer)
	if err != nil || unread.NoGroup {
		return nil, err
	}
	c, err := campaigns.Read(r.db.WithContext(ctx), id)
	if err != nil || c.ArchivedClaims > 0 { // then it had all its rows, and those that are not there were moved away
		return nil, err
	}
	for from := (lua.EntryID{}); ; {
		entries, err := r.scripts.Entries(ctx, partition, from, eventsAtOnce)
		if err != nil {
			return steps, fmt.Errorf("reconcile: repair %s: %w", id, err)
		}
		missing, err := r.orphans(ctx, id, entries, unread.Delivered)
		if err != nil {
			return steps, err
		}
		for i := range missing {
			step, err := r.adopt(ctx, partition, &missing[i])
			steps = append(steps, step...)
			if err != nil {
				return steps, err
			}
		}
		if len(entries) < eventsAtOnce {
			return steps, nil
		}
		if from = entries[len(entries)-1].ID.Next(); unread.Delivered.Less(from) {
			return steps, nil
		}
	}
}

// orphans are those events among entries, up to the one at last, that are claims of the campaign and have no row.
func (r *Reconciler) orphans(ctx context.Context, id string, entries []lua.Entry, last lua.EntryID) ([]orphan, error) {
	var all []orphan
	var ids []string
	for _, entry := range entries {
		if last.Less(entry.ID) || !strings.Contains(entry.Payload, id) {
			continue // not delivered yet, or not worth the decoding
		}
		event, err := models.DecodeEvent([]byte(entry.Payload))
		if err != nil || event.Type != models.EventClaimAccepted || event.CampaignID != id {
			continue // the consumer has put aside what can't be read
		}
		all, ids = append(all, orphan{entry.ID, event}), append(ids, event.ID)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var there []string
	err := r.db.WithContext(ctx).Raw("SELECT id FROM claims WHERE id IN ? UNION"+
		" SELECT id FROM parked_events WHERE id IN ? AND discarded_at IS NOT NULL", ids, ids).Scan(&there).Error // given up is for ever
	if err != nil {
		return nil, fmt.Errorf("reconcile: repair %s: %w", id, err)
	}
	known := make(map[string]bool, len(there))
	for _, id := range there {
		known[id] = true
	}
	var missing []orphan
	for _, o := range all {
		if !known[o.event.ID] {
			missing = append(missing, o)
		}
	}
	return missing, nil
}

// adopt writes the row of one claim, unless its event is on its way yet or another claim has its place.
func (r *Reconciler) adopt(ctx context.Context, partition int, o *orphan) ([]models.Repair, error) {
	id := o.event.CampaignID
	pending, err := r.scripts.IsPending(ctx, partition, models.GroupSyncer, o.entry)
	if err != nil {
		return nil, fmt.Errorf("reconcile: repair %s: %w", id, err)
	}
	if pending {
		return nil, nil
	}
	e := &o.event
	step, err := repairOf(id, RepairClaims, "no row of claim "+e.ID,
		fmt.Sprintf("seq %d, %d units of user %s, by its event %s", e.Seq, e.Quantity, e.UserID, o.entry))
	if err != nil {
		return nil, err
	}
	err = r.locked(ctx, id, func(tx *sql.Tx, _ *models.Campaign) error {
		if err := writer.InsertOne(ctx, tx, r.db.Name(), e); err != nil {
			return err
		}
		return writeRepair(ctx, tx, &step)
	})
	switch writer.FailureOf(err) {
	case sqlstore.FailureNone:
		return []models.Repair{step}, nil
	case sqlstore.FailureTransient, sqlstore.FailureClash:
		return nil, fmt.Errorf("reconcile: repair %s: %w", id, err)
	default:
		return nil, nil // it came back by itself, or it is parked
	}
}
