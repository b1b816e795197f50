package sums

import (
	"context"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/syncer/adder"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// LockFree locks the lots that are not
// locked, and campaigns with their shards.
func LockFree(tx *gorm.DB, lots []adder.Lot) (free map[adder.Lot]bool, err error) {
	free = make(map[adder.Lot]bool, len(lots))
	var ids, unlocked []string
	for _, lot := range lots {
		ids = append(ids, lot.ID(), lot.CampaignID)
	}
	err = tx.Table("lots").Where("id IN ?", ids).Order("id").
		Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate, Options: clause.LockingOptionsSkipLocked}).
		Pluck("id", &unlocked).Error
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool, len(unlocked))
	for _, id := range unlocked {
		found[id] = true
	}
	for _, lot := range lots {
		free[lot] = found[lot.ID()] && found[lot.CampaignID]
	}
	return free, nil
}

// AddWaiting adds waiting sums of lots that are unlocked now, also the
// sums of dead processes. It returns the lots whose sums still wait.
func AddWaiting(ctx context.Context, db *gorm.DB, now time.Time) (left map[adder.Lot]bool, err error) {
	var lots []adder.Lot
	err = db.WithContext(ctx).Table("stock_flushes").Where("waiting = 1").Distinct("campaign_id", "shard").Scan(&lots).Error
	if err != nil || len(lots) == 0 {
		return nil, err
	}
	slices.SortFunc(lots, adder.Lot.Compare)
	err = sqlstore.InTxBrief(ctx, db, func(tx *gorm.DB) error {
		left = make(map[adder.Lot]bool)
		free, err := LockFree(tx, lots)
		if err != nil {
			return err
		}
		for _, lot := range lots {
			if free[lot] {
				err = addWaitingOf(ctx, tx, lot, now)
			}
			if !free[lot] || sqlstore.FailureOf(err) == sqlstore.FailureData {
				left[lot] = true
				err = nil
			}
			if err != nil {
				return err
			}
		}
		return err
	})
	return left, err
}

// addWaitingOf adds the sums of a lot. Its
// row is locked, so no other process does.
func addWaitingOf(ctx context.Context, tx *gorm.DB, lot adder.Lot, now time.Time) error {
	var ids []string
	waiting := tx.Table("stock_flushes").Where("waiting = 1 AND campaign_id = ? AND shard = ?", lot.CampaignID, lot.Shard)
	if err := waiting.Pluck("id", &ids).Error; err != nil || len(ids) == 0 {
		return err
	}
	if err := Add(ctx, tx, ids, now); err != nil {
		return err
	}
	return tx.Table("stock_flushes").Where("id IN ?", ids).Update("waiting", nil).Error
}
