package writer

import (
	"slices"
	"strings"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/adder"
)

// lateHoldMs is the least hold of a claim written late: its user may just have heard of it.
const lateHoldMs = 30_000

// lockHolds locks the hold cursors of the batch, so that the expirer scans no claims
// meanwhile. A cursor that was not due becomes due with the first of the claims.
func (a *application) lockHolds() error {
	lots := slices.DeleteFunc(sortedLots(a.b.sums), func(lot adder.Lot) bool {
		return a.lots[lot].holdForMs == 0 || a.b.sums[lot].Claims == 0
	})
	a.heldUpto = make(map[adder.Lot]int64, len(lots))
	if len(lots) == 0 {
		return nil
	}
	var put, all []any
	for _, lot := range lots {
		put = append(put, lot.CampaignID, lot.Shard, a.b.sums[lot].FirstMs+a.lots[lot].holdForMs)
		all = append(all, lot.CampaignID, lot.Shard)
	}
	query := "INSERT INTO hold_cursors (campaign_id, shard, seq, due_ms) VALUES " +
		strings.TrimPrefix(strings.Repeat(", (?, ?, 0, ?)", len(lots)), ", ")
	if a.tx.Name() == migrations.SQLite {
		query += " ON CONFLICT (campaign_id, shard) DO UPDATE SET due_ms = COALESCE(due_ms, excluded.due_ms)"
	} else {
		query += " ON DUPLICATE KEY UPDATE due_ms = COALESCE(due_ms, VALUES(due_ms))"
	}
	if _, err := sqlstore.Exec(a.ctx, a.tx, query, put...); err != nil {
		return err
	}
	query = "SELECT campaign_id, shard, seq FROM hold_cursors WHERE " +
		strings.TrimPrefix(strings.Repeat("OR (campaign_id = ? AND shard = ?) ", len(lots)), "OR ")
	return sqlstore.ScanAll(a.ctx, a.tx, query+sqlstore.ForUpdate(a.tx), all, func(scan func(...any) error) error {
		var lot adder.Lot
		var seq int64
		err := scan(&lot.CampaignID, &lot.Shard, &seq)
		a.heldUpto[lot] = seq
		return err
	})
}

// putDues writes hold_dues for claims behind the expirer's cursor.
func (a *application) putDues() error {
	least := a.clock.Now().UnixMilli() + lateHoldMs
	var dues []models.HoldDue
	for _, r := range a.written {
		lot := adder.LotOf(&r.Event)
		if upto, isHeld := a.heldUpto[lot]; isHeld && r.Seq <= upto {
			dues = append(dues, models.HoldDue{ClaimID: r.ID, DueMs: max(least, r.At.UnixMilli()+a.lots[lot].holdForMs)})
		}
	}
	if len(dues) == 0 {
		return nil
	}
	return a.tx.Save(&dues).Error
}
