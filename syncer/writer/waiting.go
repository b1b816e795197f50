package writer

import (
	"context"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// Waiting are the sums of a lot that its counters lack, as somebody locks its row.
type Waiting struct {
	Claims, Units int64 // of claims that have their row
	Moved         int64 // units, by moves between shards
}

// ReadWaiting reads what waits of a lot.
func ReadWaiting(ctx context.Context, q sqlstore.Querier, lotID string) (w Waiting, err error) {
	campaignID, shard := models.SplitShardID(lotID)
	err = sqlstore.ScanAll(ctx, q, "SELECT COALESCE(SUM(claims), 0), COALESCE(SUM(units), 0), COALESCE(SUM(moved), 0) FROM stock_flushes"+
		" WHERE waiting = 1 AND campaign_id = ? AND shard = ?", []any{campaignID, shard}, func(scan func(...any) error) error {
		return scan(&w.Claims, &w.Units, &w.Moved)
	})
	return w, err
}
