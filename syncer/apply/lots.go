package apply

import (
	"slices"
	"strings"

	"dibs/internal/audit"
	"dibs/internal/caller"
	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/adder"
	"dibs/syncer/parking"
)

// position is what MySQL has of a lot at an
// event of the stream, including parked claims.
type position struct{ claims, units int64 }

// countBefore counts lots at their loads, before the counters are updated.
func (a *application) countBefore() error {
	var loaded []adder.Lot
	for _, e := range a.ofLots {
		if e.Type == event.LotLoaded {
			loaded = append(loaded, adder.LotOf(&e.Event))
		}
	}
	if len(loaded) == 0 {
		return nil
	}
	sums, err := a.countLots(loaded)
	if err != nil {
		return err
	}
	written := make(map[*event.Raw]bool, len(a.written))
	for _, r := range a.written {
		written[r] = true
	}
	a.loads = make(map[*event.Raw]position, len(loaded))
	for i := range a.b.Streams {
		for _, read := range a.b.Streams[i].Reads {
			for j := range read.Events {
				e := &read.Events[j]
				lot := adder.LotOf(&e.Event)
				sum, isLoaded := sums[lot]
				switch {
				case !isLoaded:
				case e.Type == event.LotLoaded:
					a.loads[e] = sum
				case written[e]:
					sums[lot] = position{sum.claims + 1, sum.units + e.Quantity}
				}
			}
		}
	}
	return nil
}

func (a *application) countLots(lots []adder.Lot) (map[adder.Lot]position, error) {
	sums := make(map[adder.Lot]position, len(lots))
	var campaigns, ids []string
	for _, lot := range lots {
		campaigns = append(campaigns, lot.CampaignID)
		ids = append(ids, lot.ID())
	}
	var counted []struct {
		adder.Lot     `gorm:"embedded"`
		Claims, Units int64
	}
	err := a.tx.Raw("SELECT campaign_id, shard, synced_seq AS claims, sold AS units FROM lots WHERE campaign_id IN ?"+
		" UNION ALL SELECT campaign_id, shard, claims, units FROM stock_flushes WHERE waiting = 1 AND campaign_id IN ?",
		campaigns, campaigns).Scan(&counted).Error
	if err != nil {
		return nil, err
	}
	for _, c := range counted {
		sums[c.Lot] = position{sums[c.Lot].claims + c.Claims, sums[c.Lot].units + c.Units}
	}
	var withParked []string
	err = a.tx.Model(&stored.ParkedEvent{}).Where("campaign_id IN ?", ids).Distinct().Pluck("campaign_id", &withParked).Error
	if err != nil {
		return nil, err
	}
	for _, id := range withParked {
		parked, err := parking.Read(a.ctx, a.tx, id)
		if err != nil {
			return nil, err
		}
		var lot adder.Lot
		lot.CampaignID, lot.Shard = models.SplitShardID(id)
		sums[lot] = position{sums[lot].claims + parked.Claims, sums[lot].units + parked.Units}
	}
	return sums, nil
}

// applyLots applies the events of lots. A load of other claims than
// MySQL has at its position used data that a restored MySQL has lost.
// Then the lot is loaded again.
func (a *application) applyLots() error {
	for _, e := range a.ofLots {
		if err := a.applyLot(e); err != nil {
			return err
		}
	}
	return nil
}

// follow sets what a newer definition changes in a lot. If it is the newest,
// Redis sells by MySQL's total. The UPDATE reads the version, as a change may
// have been committed since this snapshot. The stream may lack packets.
func (a *application) follow(e *event.Raw) (set string, args []any) {
	set = ", applied_version = " + a.greatest("applied_version", "?")
	args = []any{e.Version}
	then := func(column, value string) {
		set += ", " + column + " = CASE WHEN (SELECT version FROM definitions" +
			" WHERE definitions.campaign_id = ?) = ? THEN " + value + " ELSE " + column + " END"
		args = append(args, e.CampaignID, e.Version)
	}
	if e.Version > 0 {
		then("redis_total", "0")
		if e.Type == event.CampaignChanged || e.Definition == nil || e.Definition.Kind != models.KindPacket {
			then("untold", "NULL")
		}
	}
	return set, args
}

func (a *application) applyLot(e *event.Raw) error {
	now := a.clock.Now().UTC().Format(sqlstore.TimeLayout)
	id := e.LotID()
	switch e.Type {
	case event.LotEvicted:
		return a.tx.Exec("UPDATE lots SET residency = ?, residency_at = ?, redis_total = 0"+
			" WHERE id = ? AND epoch <= ? AND residency = ?",
			models.ResidencyEvicted, now, id, e.Epoch, models.ResidencyResident).Error
	case event.CampaignPaused:
		return a.pause(e)
	case event.PacketsPushed:
		return a.countPackets(e)
	case event.CampaignChanged:
		set, args := a.follow(e)
		return a.tx.Exec("UPDATE lots SET "+strings.TrimPrefix(set, ", ")+" WHERE id = ?", append(args, id)...).Error
	default: // a load, or its continuation
	}
	// Dropped claims leave gaps in seq, but lose no units.
	lostUnits := a.greatest("0", "? - given_up_units")
	lostClaims := a.least(lostUnits, a.greatest("0", "? - given_up_claims"))
	reload := int64(0)
	if p, isLoad := a.loads[e]; isLoad && (p.claims != e.Claims || p.units != e.Quantity) {
		reload = e.Epoch
	}
	set, args := a.follow(e)
	_, err := sqlstore.Exec(a.ctx, a.tx, "UPDATE lots SET residency = ?, residency_at = ?, generation = ?"+
		", reload_upto = "+a.greatest("reload_upto", "?")+
		", lost_units = "+lostUnits+", lost_claims = "+lostClaims+
		", seen_epoch = "+a.greatest("seen_epoch", "?")+", seen_seq = "+a.greatest("seen_seq", "?")+
		", seen_units = "+a.greatest("seen_units", "?")+", epoch = ?"+set+" WHERE id = ? AND epoch < ?",
		slices.Concat([]any{
			models.ResidencyResident, now, e.Generation, reload, e.Sold - e.Quantity, e.Sold - e.Quantity,
			e.Seq - e.Claims, e.Epoch, e.Seq, e.Sold, e.Epoch,
		}, args, []any{id, e.Epoch})...)
	if err != nil || e.Shard == 0 {
		return err
	}
	return a.sumLost(e.CampaignID)
}

func (a *application) greatest(x, y string) string {
	if a.tx.Name() == migrations.SQLite {
		return "MAX(" + x + ", " + y + ")"
	}
	return "GREATEST(" + x + ", " + y + ")"
}

func (a *application) least(x, y string) string {
	if a.tx.Name() == migrations.SQLite {
		return "MIN(" + x + ", " + y + ")"
	}
	return "LEAST(" + x + ", " + y + ")"
}

func (a *application) sumLost(campaignID string) error {
	sum := func(column string) string {
		return "(SELECT n FROM (SELECT SUM(" + column + ") AS n FROM lots" +
			" WHERE campaign_id = ? AND shard > 0) AS all_" + column + ")"
	}
	_, err := sqlstore.Exec(a.ctx, a.tx, "UPDATE lots SET lost_claims = "+sum("lost_claims")+", lost_units = "+sum("lost_units")+
		" WHERE campaign_id = ? AND shard = 0", campaignID, campaignID, campaignID)
	return err
}

// pause applies an operator's pause that was made in Redis while MySQL
// was away. Each shard reports it; the first report counts. Definitions
// made later may reopen it.
func (a *application) pause(e *event.Raw) error {
	at := e.At.UnixMilli()
	paused := a.tx.Exec("UPDATE definitions SET status = ?, pause_id = ?,"+
		" version = CASE WHEN version < ? THEN ? ELSE version + 1 END, changes = changes + 1"+
		" WHERE campaign_id = ? AND status <> ? AND (pause_id IS NULL OR pause_id < ?)",
		models.StatusPaused, e.PauseID, at, at, e.CampaignID, models.StatusClosed, e.PauseID)
	if paused.Error != nil || paused.RowsAffected == 0 {
		return paused.Error
	}
	err := a.tx.Exec("UPDATE lots SET untold = 1 WHERE campaign_id = ?"+
		" AND (shard > 0 OR 1 = (SELECT shards FROM definitions d WHERE d.campaign_id = lots.campaign_id))", e.CampaignID).Error
	if err != nil {
		return err
	}
	ctx := caller.With(a.ctx, &caller.Caller{Actor: e.Actor, RequestID: e.RequestID})
	change := map[string]string{"status": string(models.StatusPaused)}
	return audit.Put(ctx, a.tx, models.AuditCampaignPaused, e.CampaignID, nil, change)
}

// giveUp applies what operators gave up. A restored MySQL may have lost it.
func (a *application) giveUp() error {
	for _, e := range a.b.events {
		if e.Type != event.ClaimsGivenUp || e.GivenUp == nil {
			continue
		}
		if len(e.IDs) > 0 {
			err := a.tx.Model(&stored.ParkedEvent{}).Where("discarded_at IS NULL AND id IN ?", e.IDs).
				Update("discarded_at", e.At.UTC()).Error
			if err != nil {
				return err
			}
		}
		if err := a.giveUpOf(adder.LotOf(&e.Event), e.GivenUp); err != nil {
			return err
		}
	}
	return nil
}

func (a *application) giveUpOf(lot adder.Lot, now *event.GivenUp) error {
	err := a.tx.Exec("UPDATE lots SET"+
		" lost_claims = "+a.greatest("0", "lost_claims + given_up_claims - ?")+
		", lost_units = "+a.greatest("0", "lost_units + given_up_units - ?")+
		", given_up_claims = ?, given_up_units = ?"+
		" WHERE campaign_id = ? AND shard = ? AND given_up_units < ?",
		now.Claims, now.Units, now.Claims, now.Units, lot.CampaignID, lot.Shard, now.Units).Error
	if err != nil || lot.Shard == 0 {
		return err
	}
	return a.sumLost(lot.CampaignID)
}
