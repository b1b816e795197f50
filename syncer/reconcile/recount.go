package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// places are a stretch of places in the order of a campaign, from the first to the last.
type places [2]int64

// highest is the highest place in the order of the campaign that is known to have been handed out.
func (p *repair) highest(c *models.Campaign, rows *RowFigures, parked *writer.ParkedClaims) int64 {
	highest := max(rows.Last, c.SeenSeq)
	for _, one := range parked.BySeq() {
		highest = max(highest, one.Event.Seq)
	}
	if w := &p.redis; w.borneOut && (w.settled || p.stopped) {
		highest = max(highest, w.state.Seq)
		if c.Status != models.StatusClosed {
			return highest
		}
	}
	return max(highest, c.SyncedSeq+parked.Claims) // nothing tells that the counter is wrong
}

// recount makes the counters of the campaign again from its rows, with flushes held off for that long: their claims are either
// among the rows that are counted, or move the counters afterwards. Where claims are missing it leaves them alone, unless it may give
// the claims up.
func (p *repair) recount(ctx context.Context) error {
	p.missing = nil
	err := p.change(ctx, func(tx *sql.Tx, was *models.Campaign) (*models.Repair, error) {
		rows, err := accounted(ctx, tx, was)
		if err != nil {
			return nil, err
		}
		parked, err := writer.ReadParked(ctx, tx, was.ID)
		if err != nil {
			return nil, err
		}
		highest := p.highest(was, rows, parked)
		missing := highest - rows.Claims - parked.Claims - was.LostClaims
		switch {
		case missing > 0 && (!p.redis.settled && !p.stopped || rows.Archived > 0):
			return nil, nil //nolint:nilnil // they may be on their way, or archived
		case missing > 0:
			p.missing, err = missingPlaces(ctx, tx, p.id, highest, parked)
			if err != nil || !p.how.GiveUpClaims || !p.stopped {
				return nil, err
			}
		}
		is := byRows(was, rows, missing)
		if missing > 0 {
			is.SeenSeq = highest
			if err := p.tellGivenUp(ctx, tx, was, &models.Event{IDs: p.unknownIDs()}, p.missing); err != nil {
				return nil, err
			}
		}
		return p.writeCounters(ctx, tx, was, &is, rows)
	})
	if err == nil && p.stopped && p.how.GiveUpClaims {
		p.done.GivenUp = append(p.done.GivenUp, p.unknownIDs()...)
		p.missing = nil
		p.unknown = nil
	}
	return err
}

// byRows is a campaign with the counters that its rows give, when so many claims are missing.
func byRows(was *models.Campaign, rows *RowFigures, missing int64) models.Campaign {
	is := *was
	is.LostClaims = max(0, was.LostClaims+missing) // fewer, if one that was given up came after all
	is.Claimed = rows.Units
	is.ReleasedClaims = rows.Released
	is.SyncedSeq = rows.Claims + is.LostClaims
	if !campaigns.IsResident(was) || was.AppliedVersion == was.Version {
		is.RedisTotal = 0 // Redis does not work by an older total
	}
	is.Remaining = max(0, max(is.Total, is.RedisTotal)-is.Claimed)
	return is
}

func (p *repair) writeCounters(ctx context.Context, tx *sql.Tx, was, is *models.Campaign, rows *RowFigures) (*models.Repair, error) {
	before := counters(was)
	after := counters(is)
	if before == after {
		return nil, nil //nolint:nilnil // nothing to do
	}
	_, err := tx.ExecContext(ctx, "UPDATE lots SET"+
		" claimed = ?, synced_seq = ?, lost_claims = ?, redis_total = ?, released_claims = ?, seen_seq = ? WHERE id = ?",
		is.Claimed, is.SyncedSeq, is.LostClaims, is.RedisTotal, is.ReleasedClaims, is.SeenSeq, is.ID)
	if err != nil {
		return nil, err
	}
	after += fmt.Sprintf(", by %d rows of claims", rows.Claims)
	if len(p.missing) > 0 {
		after += "; given up: " + namesOf(p.missing)
	}
	return repairOf(is.ID, RepairCampaigns, before, after)
}

func counters(c *models.Campaign) string {
	return fmt.Sprintf("claimed %d, remaining %d, synced_seq %d, lost_claims %d, released_claims %d",
		c.Claimed, c.Remaining, c.SyncedSeq, c.LostClaims, c.ReleasedClaims)
}

// missingPlaces are the places up to highest that no row and no parked claim has. Places that were given up before are among them.
func missingPlaces(ctx context.Context, tx *sql.Tx, id string, highest int64, parked *writer.ParkedClaims) (missing []places, err error) {
	claims := parked.BySeq()
	next := int64(1)
	upto := func(seq int64) {
		if seq > next {
			missing = append(missing, places{next, seq - 1})
		}
		next = seq + 1
	}
	take := func(seq int64) {
		for len(claims) > 0 && claims[0].Event.Seq < seq {
			upto(claims[0].Event.Seq)
			claims = claims[1:]
		}
		upto(seq)
	}
	campaignID, shard := models.SplitShardID(id)
	err = sqlstore.ScanAll(ctx, tx, "SELECT seq FROM claims WHERE campaign_id = ? AND shard = ? ORDER BY seq", []any{campaignID, shard},
		func(scan func(...any) error) error {
			var seq int64
			err := scan(&seq)
			take(seq)
			return err
		})
	take(highest + 1)
	return missing, err
}

func namesOf(all []places) string {
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = fmt.Sprintf("seq %d", m[0])
		if m[1] > m[0] {
			names[i] = fmt.Sprintf("seq %d to %d", m[0], m[1])
		}
	}
	return joined(names)
}

// unknownIDs are the ids of the claims that Redis has a record of, but not of whose they are.
func (p *repair) unknownIDs() []string {
	ids := make([]string, len(p.unknown))
	for i, name := range p.unknown {
		ids[i], _, _ = strings.Cut(name, " ")
	}
	return ids
}
