package reconcile

import (
	"context"
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"
	"dibs/syncer/writer"
)

// Collect implements residency.Repairer.
func (p *repair) Collect(ctx context.Context, l *recovery.Lot) (err error) {
	if !p.started {
		err = p.begin(ctx)
	}
	l.Evidence = recovery.Evidence{IsStreamRead: p.readStream, AreRecordsRead: p.readRecords}
	if err == nil && p.counts {
		err = p.collect(ctx, l)
	}
	p.lot = *l
	return err
}

// begin finds out what the claim stream lost. API processes have had time to report what they answered.
func (p *repair) begin(ctx context.Context) error {
	p.before = "not there"
	if state, err := p.r.scripts.State(ctx, p.id); err == nil {
		p.before = fmt.Sprintf("epoch %d, %d claims, %d units taken", state.Epoch, state.Seq, state.Taken)
	}
	c, err := campaigns.Read(p.r.db.WithContext(ctx), p.id)
	if err == nil {
		p.loss, err = p.r.hydrator.LossOf(ctx, &c)
	}
	p.started = err == nil
	return err
}

// collect counts the rows, as of one moment, and compares them with what else is known of the lot.
func (p *repair) collect(ctx context.Context, l *recovery.Lot) error {
	var was models.Campaign
	var rows *RowFigures
	var parked *writer.ParkedClaims
	err := sqlstore.InSnapshot(ctx, p.r.db, func(tx *sqlstore.Tx) (err error) {
		_, err = readBooks(ctx, tx, p.id, &was)
		if err != nil {
			return err
		}
		rows, parked, err = p.counted(ctx, tx, &was)
		return err
	})
	if err != nil {
		return err
	}
	if l.Redis.Held == recovery.Present && (p.readRecords || was.ArchivedClaims > 0) {
		records, err := p.r.scripts.CountClaimRecords(ctx, p.id)
		if err != nil {
			return err
		}
		l.Evidence.LacksRecords = records+was.LostClaims+was.ArchivedClaims != l.Redis.At.Seq
	}
	p.add(l, &was, rows, parked)
	if err := p.addParked(ctx, l, parked); err != nil {
		return err
	}
	if l.IsSound() && !p.compared && !l.Evidence.Rows.Differ && l.Missing() <= 0 {
		p.compared = true // what is not right after the campaign was loaded again another load does not put right
		found, err := p.r.Compare(ctx, p.id, DepthUsers)
		if err != nil {
			return err
		}
		p.differs = len(found.inRedis) > 0
	}
	p.differs = p.differs && l.IsSound()
	l.Evidence.RedisDiffers = p.differs
	return nil
}

// counted reads what MySQL has of the claims of a lot.
func (p *repair) counted(ctx context.Context, tx *sqlstore.Tx, was *models.Campaign) (*RowFigures, *writer.ParkedClaims, error) {
	rows, err := accounted(ctx, tx, was)
	if err != nil {
		return nil, nil, err
	}
	parked, err := writer.ReadParked(ctx, tx, p.id)
	return rows, parked, err
}

// add adds what was counted to an observation.
func (p *repair) add(l *recovery.Lot, was *models.Campaign, rows *RowFigures, parked *writer.ParkedClaims) {
	m := &l.MySQL
	m.LostClaims = was.LostClaims
	m.SeenSeq = max(m.SeenSeq, was.SeenSeq)
	m.ParkedClaims = parked.Claims
	m.ParkedSeq = 0
	for _, one := range parked.BySeq() {
		m.ParkedSeq = max(m.ParkedSeq, one.Event.Seq)
	}
	l.Evidence.Rows = &recovery.Rows{Claims: rows.Claims, LastSeq: rows.Last, SyncedSeq: was.SyncedSeq}
	is := byRows(was, rows, p.surplus(l))
	l.Evidence.Rows.Differ = counters(was) != counters(&is)
}

// surplus is how many claims too many were given up, as a negative number: one that came after all is among the rows. Rows may have come
// since a lot that takes claims was observed.
func (p *repair) surplus(l *recovery.Lot) int64 {
	if l.IsSound() {
		return 0
	}
	return min(0, l.Missing())
}

// addParked adds what may be done about parked claims.
func (p *repair) addParked(ctx context.Context, l *recovery.Lot, parked *writer.ParkedClaims) error {
	if !p.triedParked {
		l.Evidence.ParkedToRestore = len(parked.All)
		return nil
	}
	displaced, err := p.displaced(ctx, parked)
	l.Evidence.Displaced = len(displaced)
	for i := range parked.All {
		one := &parked.All[i]
		_, hasNoSeq := p.noSeq[one.ID]
		mayHaveSeq := slices.ContainsFunc(displaced, func(d writer.ParkedClaim) bool { return d.ID == one.ID })
		isInTheWay := !l.IsSound() && !one.Counts && !hasNoSeq
		if !one.Written && !mayHaveSeq && (p.how.GiveUpClaims || isInTheWay) {
			l.Evidence.Unwritable++
		}
	}
	return err
}
