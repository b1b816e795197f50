package tables

import (
	"context"

	"dibs/models"

	"gorm.io/gorm"
)

// Waiting are sums that a locked lot's counters do not have yet.
type Waiting struct {
	Claims, Units int64 // of claims with rows
	Moved         int64 // units, by moves between shards
}

// ReadWaiting reads a lot's waiting sums.
func ReadWaiting(ctx context.Context, db *gorm.DB, lotID string) (w Waiting, err error) {
	campaignID, shard := models.SplitShardID(lotID)
	err = db.WithContext(ctx).Table("stock_flushes").Where("waiting = 1 AND campaign_id = ? AND shard = ?", campaignID, shard).
		Select("COALESCE(SUM(claims), 0) AS claims, COALESCE(SUM(units), 0) AS units, COALESCE(SUM(moved), 0) AS moved").
		Scan(&w).Error
	return w, err
}
