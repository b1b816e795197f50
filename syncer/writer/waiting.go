package writer

import (
	"context"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// Waiting are sums that are not in a lot's counters yet, as its row is locked.
type Waiting struct {
	Claims, Units int64 // of claims with rows
	Moved         int64 // units, by moves between shards
}

// ReadWaiting reads a lot's waiting sums.
func ReadWaiting(ctx context.Context, q *gorm.DB, lotID string) (w Waiting, err error) {
	campaignID, shard := models.SplitShardID(lotID)
	const query = "SELECT COALESCE(SUM(claims), 0), COALESCE(SUM(units), 0), COALESCE(SUM(moved), 0)" +
		" FROM stock_flushes WHERE waiting = 1 AND campaign_id = ? AND shard = ?"
	err = sqlstore.ScanAll(ctx, q, query, []any{campaignID, shard}, func(scan func(...any) error) error {
		return scan(&w.Claims, &w.Units, &w.Moved)
	})
	return w, err
}
