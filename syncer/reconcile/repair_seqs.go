package reconcile

import (
	"context"
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// displaced are the parked claims whose seq another claim has, because Redis was rolled back and sold it again, and that may have a new
// one. The oldest come first. The others are noted in noSeq.
func (p *repair) displaced(ctx context.Context, parked *writer.ParkedClaims) (displaced []writer.ParkedClaim, err error) {
	p.noSeq = make(map[string]string)
	all := slices.DeleteFunc(slices.Clone(parked.All), func(one writer.ParkedClaim) bool {
		return one.Written || one.Counts || one.Record().Check() != nil || p.refused[one.ID]
	})
	if len(all) == 0 {
		return nil, nil
	}
	c, err := campaigns.Read(p.r.db.WithContext(ctx), p.id)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b writer.ParkedClaim) int { return a.Event.At.Compare(b.Event.At.Time) })
	for i := range all {
		why, err := seqRefusal(ctx, p.r.db.ConnPool, &c, parked.Units, &all[i])
		switch {
		case err != nil:
			return nil, err
		case why != "":
			p.noSeq[all[i].ID] = why
		default:
			displaced = append(displaced, all[i])
		}
	}
	return displaced, nil
}

// seqRefusal reports why a displaced claim can't have a new seq; "" is that it can.
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

// renumber gives displaced claims new seqs, the oldest first, while stock lasts.
func (p *repair) renumber(ctx context.Context) error {
	parked, err := writer.ReadParked(ctx, p.r.db.ConnPool, p.id)
	if err != nil {
		return err
	}
	displaced, err := p.displaced(ctx, parked)
	if err != nil {
		return err
	}
	p.refused = make(map[string]bool)
	for i := range displaced {
		err := p.change(ctx, func(tx *sqlstore.Tx, c *models.Campaign) (*models.Repair, error) {
			return p.renumberOne(ctx, tx, c, &displaced[i])
		})
		if isRefusal(err) {
			p.refused[displaced[i].ID] = true
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// renumberOne gives a claim the next seq behind all that were ever handed out. It moves the counters with it, so that a load that was
// started before is not confirmed.
func (p *repair) renumberOne(ctx context.Context, tx *sqlstore.Tx, c *models.Campaign, one *writer.ParkedClaim) (*models.Repair, error) {
	if c.Residency != models.ResidencyLost {
		return nil, sqlstore.Final(campaigns.ErrMoved)
	}
	l := p.lot
	rows, parked, err := p.counted(ctx, tx, c)
	if err != nil {
		return nil, err
	}
	p.add(&l, c, rows, parked)
	why, err := seqRefusal(ctx, tx, c, parked.Units, one)
	if err != nil {
		return nil, err
	}
	if why != "" {
		p.noSeq[one.ID] = why
		return nil, nil //nolint:nilnil // nothing to do
	}
	e := one.Event
	e.Seq = 1 + max(l.HighestSeq(), l.Redis.At.Seq)
	if err := writer.InsertMissing(ctx, tx, []models.Event{e}); err != nil {
		return nil, err
	}
	err = writer.MoveCounters(ctx, tx, []writer.Delta{{LotID: p.id, Units: e.Quantity, Claims: 1}}, sqlstore.Now())
	if err == nil {
		err = unpark(ctx, tx, []writer.ParkedClaim{*one})
	}
	if err != nil {
		return nil, err
	}
	return repairOf(p.id, RepairPlaces, one.String(), fmt.Sprintf("its new seq is %d, with %d units", e.Seq, e.Quantity))
}
