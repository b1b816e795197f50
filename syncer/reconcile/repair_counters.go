package reconcile

import (
	"context"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// seqRange is a range of seqs of a campaign, from the first to the last.
type seqRange [2]int64

// recount makes the counters of the campaign again from its rows, with flushes held off for that long: their claims are either
// among the rows that are counted, or move the counters afterwards. Where claims are missing it gives them up, or leaves the counters.
func (p *repair) recount(ctx context.Context, givesUp bool) error {
	if givesUp && p.archived() { // which ones is not known
		return fmt.Errorf("%w: claims are missing, and rows of the campaign are archived: they cannot be given up", campaigns.ErrLost)
	}
	err := p.change(ctx, func(tx *sqlstore.Tx, was *models.Campaign) (*models.Repair, error) {
		if givesUp && was.Residency != models.ResidencyLost {
			return nil, sqlstore.Final(campaigns.ErrMoved)
		}
		rows, parked, err := p.counted(ctx, tx, was)
		if err != nil {
			return nil, err
		}
		// What waits to be added is among the rows.
		if left, err := writer.Counted(ctx, tx, p.id); err != nil || left {
			return nil, err
		}
		l := p.lot
		p.add(&l, was, rows, parked)
		missing := l.Missing()
		if missing > 0 && !givesUp {
			return nil, nil //nolint:nilnil // the next observation finds them
		}
		if missing <= 0 {
			is := byRows(was, rows, p.surplus(&l))
			return p.writeCounters(ctx, tx, was, &is, rows, "")
		}
		is := byRows(was, rows, missing)
		is.SeenSeq = l.HighestSeq()
		seqs, err := missingSeqs(ctx, tx, p.id, is.SeenSeq, parked)
		if err == nil {
			err = p.publishGivenUp(ctx, tx, was, &models.Event{IDs: p.unknownIDs()}, seqs)
		}
		if err != nil {
			return nil, err
		}
		return p.writeCounters(ctx, tx, was, &is, rows, "; given up: "+namesOf(seqs))
	})
	if err == nil && givesUp {
		p.done.GivenUp = append(p.done.GivenUp, p.unknownIDs()...)
		p.unknown = nil
	}
	return err
}

// missing are the seqs of claims that were answered and that nothing accounts for.
func (p *repair) missing(ctx context.Context) (missing []seqRange, err error) {
	if !p.counts || p.archived() || p.lot.Missing() <= 0 {
		return nil, nil
	}
	err = sqlstore.InSnapshot(ctx, p.r.db, func(tx *sqlstore.Tx) error {
		parked, err := writer.ReadParked(ctx, tx, p.id)
		if err == nil {
			missing, err = missingSeqs(ctx, tx, p.id, p.lot.HighestSeq(), parked)
		}
		return err
	})
	return missing, err
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

func (p *repair) writeCounters(
	ctx context.Context, tx *sqlstore.Tx, was, is *models.Campaign, rows *RowFigures, givenUp string,
) (*models.Repair, error) {
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
	return repairOf(is.ID, RepairCampaigns, before, after+fmt.Sprintf(", by %d rows of claims", rows.Claims)+givenUp)
}

func counters(c *models.Campaign) string {
	return fmt.Sprintf("claimed %d, remaining %d, synced_seq %d, lost_claims %d, released_claims %d",
		c.Claimed, c.Remaining, c.SyncedSeq, c.LostClaims, c.ReleasedClaims)
}

// missingSeqs are the seqs up to highest that no row and no parked claim has. Seqs that were given up before are among them.
func missingSeqs(
	ctx context.Context, tx *sqlstore.Tx, id string, highest int64, parked *writer.ParkedClaims,
) (missing []seqRange, err error) {
	claims := parked.BySeq()
	next := int64(1)
	upto := func(seq int64) {
		if seq > next {
			missing = append(missing, seqRange{next, seq - 1})
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

func namesOf(all []seqRange) string {
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
