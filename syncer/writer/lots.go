package writer

import (
	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/adder"
)

// place is what MySQL has of a lot where an event stands in the stream: claims with rows and parked ones, and their units.
type place struct{ claims, units int64 }

// countBefore counts what MySQL has of lots where they were loaded, before the counters move.
func (a *application) countBefore() (map[*models.RawEvent]place, error) {
	places := make(map[*models.RawEvent]place)
	for _, e := range a.b.lots {
		if e.Type != models.EventLotLoaded {
			continue
		}
		p, err := a.countLot(adder.LotOf(&e.Event))
		if err != nil {
			return nil, err
		}
		places[e] = p
	}
	if len(places) == 0 {
		return nil, nil
	}
	written := make(map[*models.RawEvent]bool, len(a.written))
	for _, r := range a.written {
		written[r] = true
	}
	sums := make(map[adder.Lot]place) // of rows of this batch
	for i := range a.b.streams {
		for _, read := range a.b.streams[i].Reads {
			for j := range read.Events {
				e := &read.Events[j]
				lot := adder.LotOf(&e.Event)
				sum := sums[lot]
				if p, is := places[e]; is {
					places[e] = place{p.claims + sum.claims, p.units + sum.units}
				}
				if written[e] {
					sums[lot] = place{sum.claims + 1, sum.units + e.Quantity}
				}
			}
		}
	}
	return places, nil
}

// countLot counts what MySQL has of a lot.
func (a *application) countLot(lot adder.Lot) (p place, err error) {
	err = a.tx.QueryRowContext(a.ctx, "SELECT COALESCE(SUM(synced_seq), 0), COALESCE(SUM(sold), 0) FROM lots WHERE campaign_id = ? AND shard = ?",
		lot.CampaignID, lot.Shard).Scan(&p.claims, &p.units)
	if err != nil {
		return p, err
	}
	waiting, err := ReadWaiting(a.ctx, a.tx, lot.ID())
	if err != nil {
		return p, err
	}
	parked, err := ReadParked(a.ctx, a.tx, lot.ID())
	if err != nil {
		return p, err
	}
	return place{p.claims + waiting.Claims + parked.Claims, p.units + waiting.Units + parked.Units}, nil
}

// applyLots notes what became of lots in Redis. A load that was made of other claims than MySQL has there was made of what a MySQL that was
// restored has lost: the lot is loaded again.
func (a *application) applyLots(places map[*models.RawEvent]place) error {
	for _, e := range a.b.lots {
		err := a.applyLot(e, places)
		if err != nil {
			return err
		}
	}
	return nil
}

// The total by which Redis sells is MySQL's once it has the newest definition.
const exactTotal = "redis_total = CASE WHEN " + isNewest + " THEN 0 ELSE redis_total END, untold = CASE WHEN " + isNewest + " THEN NULL ELSE untold END," +
	" applied_version = CASE WHEN applied_version < ? THEN ? ELSE applied_version END"

const isNewest = "(SELECT version FROM definitions d WHERE d.campaign_id = lots.campaign_id) = ?"

func (a *application) applyLot(e *models.RawEvent, places map[*models.RawEvent]place) error {
	now := a.clock.Now().UTC().Format(sqlstore.TimeLayout)
	id := e.LotID()
	switch e.Type {
	case models.EventLotEvicted:
		_, err := a.tx.ExecContext(a.ctx, "UPDATE lots SET residency = ?, residency_at = ?, redis_total = 0 WHERE id = ? AND epoch <= ?"+
			" AND residency = ?", models.ResidencyEvicted, now, id, e.Epoch, models.ResidencyResident)
		return err
	case models.EventCampaignPaused:
		return a.pause(e)
	case models.EventPacketsPushed:
		return a.countPackets(e)
	case models.EventCampaignChanged:
		_, err := a.tx.ExecContext(a.ctx, "UPDATE lots SET "+exactTotal+" WHERE id = ?", e.Version, e.Version, e.Version, e.Version, id)
		return err
	}
	told := e.Version
	if d := e.Definition; d != nil && d.Kind == models.KindPacket { // the stream may lack packets
		told = 0
	}
	reload := int64(0)
	if p, is := places[e]; is && (p.claims != e.Claims || p.units != e.Quantity) {
		reload = e.Epoch
	}
	_, err := a.tx.ExecContext(a.ctx, "UPDATE lots SET residency = ?, residency_at = ?, generation = ?, reload_upto = CASE WHEN reload_upto < ?"+
		" THEN ? ELSE reload_upto END, "+exactTotal+
		", lost_units = "+a.greatest("0", "? - given_up_units")+", lost_claims = "+a.greatest("0", "? - given_up_claims")+
		", seen_epoch = "+a.greatest("seen_epoch", "?")+", seen_seq = "+a.greatest("seen_seq", "?")+
		", seen_units = "+a.greatest("seen_units", "?")+", epoch = ? WHERE id = ? AND epoch < ?",
		models.ResidencyResident, now, e.Generation, reload, reload, e.Version, told, e.Version, e.Version, e.Sold-e.Quantity, e.Seq-e.Claims,
		e.Epoch, e.Seq, e.Sold, e.Epoch, id, e.Epoch)
	if err == nil && e.Shard > 0 {
		err = a.sumLost(e.CampaignID)
	}
	return err
}

// greatest is the greater of two values in the dialect of the database.
func (a *application) greatest(x, y string) string {
	if a.tx.Name() == migrations.SQLite {
		return "MAX(" + x + ", " + y + ")"
	}
	return "GREATEST(" + x + ", " + y + ")"
}

// sumLost has the campaign of a shard count what its shards lost.
func (a *application) sumLost(campaignID string) error {
	sum := func(column string) string {
		return "(SELECT n FROM (SELECT SUM(" + column + ") AS n FROM lots WHERE campaign_id = ? AND shard > 0) AS all_" + column + ")"
	}
	_, err := a.tx.ExecContext(a.ctx, "UPDATE lots SET lost_claims = "+sum("lost_claims")+", lost_units = "+sum("lost_units")+
		" WHERE campaign_id = ? AND shard = 0", campaignID, campaignID, campaignID)
	return err
}
