package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"dibs/internal/ledger"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/google/uuid"
)

// eventsAtOnce is how many entries of a stream are read, and rows written, at once.
const eventsAtOnce = 500

// restoreFromStream goes over the claim stream and writes the rows of claims of the campaign that are not there though MySQL has applied
// their entries. For the counters see move.
func (p *repair) restoreFromStream(ctx context.Context) error {
	partition := lua.PartitionOf(p.id, p.r.scripts.Partitions())
	applied, err := writer.Applied(ctx, p.r.db.ConnPool, partition)
	if err != nil || p.archived() {
		return err
	}
	for from := (lua.EntryID{}); ; {
		entries, err := p.r.scripts.Entries(ctx, partition, from, eventsAtOnce)
		if err != nil {
			return err
		}
		events, err := p.orphans(ctx, entries, applied)
		if err == nil {
			err = p.insert(ctx, events, "their events in the claim stream")
		}
		if err == nil {
			err = p.resolve(ctx, entries)
		}
		if err != nil || len(entries) < eventsAtOnce {
			return err
		}
		from = entries[len(entries)-1].ID.Next()
		if applied.Less(from) {
			return nil
		}
	}
}

// archived reports whether rows were moved away. The campaign had all its rows then, and none comes back.
func (p *repair) archived() bool { return p.done.Found.Rows.Archived > 0 }

// orphans are the claims of the campaign among entries, up to the one at last, that have no row and are not on their way.
func (p *repair) orphans(ctx context.Context, entries []lua.Entry, last lua.EntryID) (orphans []models.Event, err error) {
	var events []models.Event
	campaignID, _ := models.SplitShardID(p.id)
	for _, entry := range entries {
		if last.Less(entry.ID) || !strings.Contains(entry.Payload, campaignID) {
			continue // not applied yet, or not worth the decoding
		}
		event, err := models.DecodeEvent([]byte(entry.Payload))
		if err != nil || event.Type != models.EventClaimAccepted || event.LotID() != p.id {
			continue // the consumer has put aside what can't be read
		}
		events = append(events, event)
	}
	known, err := knownClaims(ctx, p.r.db.ConnPool, idsOf(events))
	if err != nil {
		return nil, err
	}
	for i := range events {
		if known[events[i].ID] {
			continue
		}
		orphans = append(orphans, events[i])
	}
	return orphans, nil
}

// resolve marks claims as redeemed or released that MySQL holds as claimed though the stream tells that they were, which was decided in
// MySQL: it was restored since. Counters that do not agree with the rows may count a release whose row someone changed: that row stands.
func (p *repair) resolve(ctx context.Context, entries []lua.Entry) error {
	var events []models.Event
	campaignID, _ := models.SplitShardID(p.id)
	for _, entry := range entries {
		isResolved := strings.Contains(entry.Payload, string(models.EventClaimRedeemed)) ||
			strings.Contains(entry.Payload, string(models.EventClaimReleased))
		if !isResolved || !strings.Contains(entry.Payload, campaignID) {
			continue // not worth the decoding
		}
		e, err := models.DecodeEvent([]byte(entry.Payload))
		isLost := e.Type == models.EventClaimRedeemed || e.Type == models.EventClaimReleased && !p.lot.Evidence.Rows.Differ
		if err == nil && isLost && e.LotID() == p.id {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return nil
	}
	return p.change(ctx, func(tx *sqlstore.Tx, _ *models.Campaign) (*models.Repair, error) {
		var redeemed, released, units int64
		for i := range events {
			e := &events[i]
			n, err := resolveOne(ctx, tx, e)
			if err != nil {
				return nil, err
			}
			if e.Type == models.EventClaimRedeemed {
				redeemed += n
			} else {
				released += n
				units += n * e.Quantity
			}
		}
		if redeemed+released == 0 {
			return nil, nil
		}
		if err := p.move(ctx, tx, 0, -units, released); err != nil {
			return nil, err
		}
		return repairOf(p.id, RepairClaims, fmt.Sprintf("%d claims are claimed", redeemed+released),
			fmt.Sprintf("%d are redeemed and %d released, by their events in the claim stream", redeemed, released))
	})
}

// resolveOne has a claim be what an event says, and returns 1 if MySQL held it as claimed.
func resolveOne(ctx context.Context, tx *sqlstore.Tx, e *models.Event) (n int64, err error) {
	status := models.ClaimReleased
	reason := e.Reason
	var orderID any
	switch {
	case e.Type == models.EventClaimRedeemed:
		status = models.ClaimRedeemed
		orderID = e.OrderID
	case reason == models.ReasonExpired:
		status = models.ClaimExpired
		reason = ""
	}
	n, err = sqlstore.Exec(ctx, tx, "UPDATE claims SET status = ?, order_id = ?, release_reason = ?, resolved_at = ? WHERE id = ? AND status = ?",
		string(status), orderID, reason, e.At.UTC().Format(sqlstore.TimeLayout), e.ClaimID, string(models.ClaimClaimed))
	if err == nil && n > 0 && status == models.ClaimRedeemed {
		err = writer.PutOrder(ctx, tx, e.OrderID, e.ClaimID)
	}
	if err == nil && n > 0 {
		err = ledger.PutOnce(ctx, tx, e)
	}
	return n, err
}

func idsOf(events []models.Event) []string {
	return sqlstore.Keys(events, func(e *models.Event) string { return e.ID })
}

// knownClaims reports which claims need no row: they have one, they are parked, or they were given up, which is for ever.
func knownClaims(ctx context.Context, q sqlstore.Querier, ids []string) (map[string]bool, error) {
	known := make(map[string]bool, len(ids))
	if len(ids) == 0 {
		return known, nil
	}
	marks := sqlstore.Marks(len(ids))
	args := sqlstore.Args(ids)
	err := sqlstore.ScanAll(ctx, q, "SELECT id FROM claims WHERE id IN "+marks+" UNION SELECT id FROM parked_events WHERE id IN "+marks,
		append(args, args...), func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			known[id] = true
			return err
		})
	return known, err
}

// insert writes the rows of claims. One that contradicts what MySQL holds is parked.
func (p *repair) insert(ctx context.Context, events []models.Event, evidence string) error {
	slices.SortFunc(events, func(a, b models.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	for part := range slices.Chunk(events, eventsAtOnce) {
		err := p.insertPart(ctx, part, evidence)
		if isRefusal(err) {
			err = p.insertEach(ctx, part, evidence)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *repair) insertEach(ctx context.Context, events []models.Event, evidence string) error {
	for i := range events {
		err := p.insertPart(ctx, events[i:i+1], evidence)
		if isRefusal(err) {
			err = writer.Park(ctx, p.r.db, &events[i], payloadOf(&events[i]), "a repair could not write it: "+err.Error())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isRefusal reports whether an error is about the rows themselves.
func isRefusal(err error) bool {
	switch writer.FailureOf(err) {
	case sqlstore.FailureNone, sqlstore.FailureTransient, sqlstore.FailureClash:
		return false
	default:
		return true
	}
}

func (p *repair) insertPart(ctx context.Context, all []models.Event, evidence string) error {
	return p.change(ctx, func(tx *sqlstore.Tx, _ *models.Campaign) (*models.Repair, error) {
		known, err := knownClaims(ctx, tx, idsOf(all)) // another repair may have written some by now
		events := slices.DeleteFunc(slices.Clone(all), func(e models.Event) bool { return known[e.ID] })
		if err != nil || len(events) == 0 {
			return nil, err
		}
		if err := writer.InsertMissing(ctx, tx, events); err != nil {
			return nil, err
		}
		var units int64
		for i := range events {
			units += events[i].Quantity
		}
		if err := p.move(ctx, tx, int64(len(events)), units, 0); err != nil {
			return nil, err
		}
		first := &events[0]
		last := &events[len(events)-1]
		return repairOf(p.id, RepairClaims, fmt.Sprintf("no rows of %d claims, seq %d to %d", len(events), first.Seq, last.Seq),
			fmt.Sprintf("their rows, by %s; the first is claim %s of user %s", evidence, first.ID, first.UserID))
	})
}

// move moves the counters of the campaign, or shard, by rows that came back, in their transaction, so that a reader finds both agree at
// every instant. Counters that did not agree with the rows may count these already, and are left for recount.
func (p *repair) move(ctx context.Context, tx *sqlstore.Tx, claims, units, released int64) error {
	if p.lot.Evidence.Rows.Differ {
		return nil
	}
	return writer.MoveCounters(ctx, tx, []writer.Delta{{LotID: p.id, Units: units, Claims: claims, Released: released}}, sqlstore.Now())
}

// release marks claims as released that MySQL holds as claimed though Redis was notified of their release, which was decided in MySQL:
// it was restored since.
func (p *repair) release(ctx context.Context, ids []string) error {
	if len(ids) == 0 || p.lot.Redis.At.Released <= p.lot.MySQL.ReleasedClaims {
		return nil
	}
	return p.change(ctx, func(tx *sqlstore.Tx, _ *models.Campaign) (*models.Repair, error) {
		now, err := ledger.Time(ctx, tx)
		if err != nil {
			return nil, err
		}
		const reason = "released before mysql was restored"
		args := []any{string(models.ClaimReleased), now.Format(sqlstore.TimeLayout), reason,
			string(models.ClaimClaimed)}
		args = append(args, sqlstore.Args(ids)...)
		var units int64
		var events []*models.Event
		query := "SELECT id, campaign_id, shard, seq, user_id, quantity, key_digest, subjects, claimed_at FROM claims" +
			" WHERE status = ? AND id IN " +
			sqlstore.Marks(len(ids))
		err = sqlstore.ScanAll(ctx, tx, query, args[3:], func(scan func(...any) error) error {
			at := models.NewTime(now)
			e := &models.Event{
				V: models.EventVersion, Type: models.EventClaimReleased, ID: uuid.NewString(), At: at, ClaimedAt: &models.Time{}, Reason: reason,
			}
			err := scan(&e.ClaimID, &e.CampaignID, &e.Shard, &e.Seq, &e.UserID, &e.Quantity, &e.Key, &e.Subjects, &e.ClaimedAt.Time)
			units += e.Quantity
			events = append(events, e)
			return err
		})
		if err == nil {
			err = ledger.Put(ctx, tx, events)
		}
		if err != nil {
			return nil, err
		}
		query = "UPDATE claims SET status = ?, resolved_at = ?, release_reason = ? WHERE status = ? AND id IN " + sqlstore.Marks(len(ids))
		n, err := sqlstore.Exec(ctx, tx, query, args...)
		if err != nil || n == 0 {
			return nil, err
		}
		if err := p.move(ctx, tx, 0, -units, n); err != nil {
			return nil, err
		}
		return repairOf(p.id, RepairClaims, fmt.Sprintf("%d claims are claimed", n), "they are released, by their records in redis")
	})
}
