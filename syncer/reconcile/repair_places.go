package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// claimsWithoutSeq are the parked claims whose place in the campaign another claim has, because Redis was rolled back and sold it again,
// and that
// may have a new one. The oldest come first. The others are noted in noPlace.
func (p *repair) claimsWithoutSeq(ctx context.Context) (displaced []writer.ParkedClaim, err error) {
	all, err := writer.ReadParked(ctx, p.r.db.ConnPool, p.id)
	if err != nil {
		return nil, err
	}
	c, err := campaigns.Read(p.r.db.WithContext(ctx), p.id)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all.All, func(a, b writer.ParkedClaim) int { return a.Event.At.Compare(b.Event.At.Time) })
	p.noPlace = make(map[string]string)
	for i := range all.All {
		one := &all.All[i]
		if one.Written || one.Counts || one.Record().Check() != nil {
			continue
		}
		why, err := seqRefusal(ctx, p.r.db.ConnPool, &c, all.Units, one)
		switch {
		case err != nil:
			return nil, err
		case why != "":
			p.noPlace[one.ID] = why
		default:
			displaced = append(displaced, *one)
		}
	}
	return displaced, nil
}

// seqRefusal reports why a displaced claim can't have a new place; "" is that it can.
func seqRefusal(ctx context.Context, q sqlstore.Querier, c *models.Campaign, parkedUnits int64, one *writer.ParkedClaim) (string, error) {
	e := &one.Event
	if free := c.Total - c.Claimed - parkedUnits; e.Quantity > free {
		return fmt.Sprintf("%d units are left", max(0, free)), nil
	}
	count := func(query string, args ...any) (n int64, err error) {
		err = sqlstore.ScanAll(ctx, q, query, args, func(scan func(...any) error) error { return scan(&n) })
		return n, err
	}
	if e.PacketID != "" {
		free, err := count("SELECT COUNT(*) FROM packets WHERE campaign_id = ? AND id = ? AND amount = ?"+
			" AND claim_id IS NULL AND returned_at IS NULL", e.CampaignID, e.PacketID, e.Amount)
		if err != nil || free == 0 {
			return "packet " + e.PacketID + " is not free", err
		}
	}
	if e.Key != "" {
		same, err := count("SELECT COUNT(*) FROM claims WHERE campaign_id = ? AND shard = ? AND key_digest = ?",
			e.CampaignID, e.Shard, e.Key)
		if err != nil || same > 0 {
			return "another claim was made with its idempotency key", err
		}
	}
	limit, err := exceeds(ctx, q, c, one)
	if limit != "" {
		limit = fmt.Sprintf("user %s would exceed %s", e.UserID, limit)
	}
	return limit, err
}

// exceeds names the limit that a claim would exceed; "" is none.
func exceeds(ctx context.Context, q sqlstore.Querier, c *models.Campaign, one *writer.ParkedClaim) (string, error) {
	users, err := lua.NewUserRecords(c, 1)
	if err != nil {
		return "", err
	}
	others := ""
	if len(one.Event.Subjects) > 0 {
		others = " OR subjects IS NOT NULL" // no index finds those of a subject
	}
	err = sqlstore.ScanAll(ctx, q, "SELECT user_id, subjects, quantity, claimed_at, status FROM claims"+
		" WHERE campaign_id = ? AND (user_id = ?"+others+
		") ORDER BY seq",
		[]any{one.Event.CampaignID, one.Event.UserID}, func(scan func(...any) error) error {
			var status models.ClaimStatus
			var record lua.ClaimRecord
			err := scan(&record.UserID, &record.Subjects, &record.Quantity, &record.At, &status)
			record.Live = status.Live()
			users.Add(&record)
			return err
		})
	record := one.Record()
	users.Add(record)
	return users.Exceeds(record), err
}

// errLoadedAgain says that someone brought the campaign back while it was repaired.
var errLoadedAgain = errors.New("reconcile: the campaign was loaded into redis in the meantime, repair it again")

// place gives displaced claims new places, the oldest first, while stock lasts.
func (p *repair) place(ctx context.Context) error {
	displaced, err := p.claimsWithoutSeq(ctx)
	if err != nil {
		return err
	}
	for i := range displaced {
		err := p.change(ctx, func(tx *sql.Tx, c *models.Campaign) (*models.Repair, error) {
			return p.placeOne(ctx, tx, c, &displaced[i])
		})
		if err != nil && !isRefusal(err) { // what the database refuses wherever it stands noneInTheWay tells
			return err
		}
	}
	return nil
}

// placeOne gives a claim the next place behind all that were ever handed out. It moves the counters with it, so that a load that was
// started before is not confirmed.
func (p *repair) placeOne(ctx context.Context, tx *sql.Tx, c *models.Campaign, one *writer.ParkedClaim) (*models.Repair, error) {
	if c.Residency != models.ResidencyLost {
		return nil, sqlstore.Final(errLoadedAgain)
	}
	rows, err := accounted(ctx, tx, c)
	if err != nil {
		return nil, err
	}
	parked, err := writer.ReadParked(ctx, tx, p.id)
	if err != nil {
		return nil, err
	}
	why, err := seqRefusal(ctx, tx, c, parked.Units, one)
	if err != nil {
		return nil, err
	}
	if why != "" {
		p.noPlace[one.ID] = why
		return nil, nil //nolint:nilnil // nothing to do
	}
	e := one.Event
	e.Seq = 1 + max(p.highest(c, rows, parked), p.redis.state.Seq)
	if err := writer.InsertMissing(ctx, tx, p.r.db.Name(), []models.Event{e}); err != nil {
		return nil, err
	}
	err = writer.MoveCounters(ctx, tx, []writer.Delta{{LotID: p.id, Units: e.Quantity, Claims: 1}}, sqlstore.Now())
	if err == nil {
		err = unpark(ctx, tx, one.ID)
	}
	if err != nil {
		return nil, err
	}
	return repairOf(p.id, RepairPlaces, one.String(), fmt.Sprintf("its new place is seq %d, with %d units", e.Seq, e.Quantity))
}
