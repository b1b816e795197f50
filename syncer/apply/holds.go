package apply

import (
	"slices"

	"dibs/internal/migrations"
	"dibs/models/stored"
	"dibs/syncer/adder"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// lateHoldMs is the least hold of a claim written late: its user may
// have been answered just now.
const lateHoldMs = 30_000

// lockHolds locks the hold cursors of the batch, so that the expirer
// scans no claims until the commit. A cursor that was not due becomes
// due with the first of the claims.
func (a *application) lockHolds() error {
	lots := slices.DeleteFunc(a.b.Sums.Lots(), func(lot adder.Lot) bool {
		return a.lots[lot].HoldForMs == 0 || a.b.Sums[lot].Claims == 0
	})
	a.heldUpto = make(map[adder.Lot]int64, len(lots))
	if len(lots) == 0 {
		return nil
	}
	var cursors []stored.HoldCursor
	these := a.tx.Session(&gorm.Session{NewDB: true})
	for _, lot := range lots {
		due := a.b.Sums[lot].FirstMs + a.lots[lot].HoldForMs
		cursors = append(cursors, stored.HoldCursor{CampaignID: lot.CampaignID, Shard: lot.Shard, DueMs: &due})
		these = these.Or("campaign_id = ? AND shard = ?", lot.CampaignID, lot.Shard)
	}
	proposed := "VALUES(due_ms)"
	if a.tx.Name() == migrations.SQLite {
		proposed = "excluded.due_ms"
	}
	err := a.tx.Clauses(clause.OnConflict{
		Columns:   []clause.Column{{Name: "campaign_id"}, {Name: "shard"}},
		DoUpdates: clause.Assignments(map[string]any{"due_ms": gorm.Expr("COALESCE(hold_cursors.due_ms, " + proposed + ")")}),
	}).Create(&cursors).Error
	if err != nil {
		return err
	}
	var locked []stored.HoldCursor
	err = a.tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where(these).Find(&locked).Error
	if err != nil {
		return err
	}
	for _, c := range locked {
		a.heldUpto[adder.Lot{CampaignID: c.CampaignID, Shard: c.Shard}] = c.Seq
	}
	return nil
}

// putDues writes hold_dues for claims that the expirer's cursor may miss:
// those behind it, and those that may have the seq of another claim. These
// were parked, or Redis lost data.
func (a *application) putDues() error {
	least := a.clock.Now().UnixMilli() + lateHoldMs
	var dues []stored.HoldDue
	for _, r := range a.written {
		lot := adder.LotOf(&r.Event)
		upto, isHeld := a.heldUpto[lot]
		if isHeld && (r.Seq <= upto || len(a.b.Streams) == 0 || a.isRecovering(lot)) {
			dues = append(dues, stored.HoldDue{ClaimID: r.ID, DueMs: max(least, r.At.UnixMilli()+a.lots[lot].HoldForMs)})
		}
	}
	if len(dues) == 0 {
		return nil
	}
	return a.tx.Save(&dues).Error
}
