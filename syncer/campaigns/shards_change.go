package campaigns

import (
	"context"
	"fmt"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// Settler makes the shards of a campaign add up to its total.
type Settler interface {
	// Settle adds units to the shards, or takes
	// them out, after a change of the total.
	Settle(ctx context.Context, campaignID string) error
}

// SettleBy makes s settle changes of totals at once; else the syncer
// does it later. It is called before r is used.
func (r *Repository) SettleBy(s Settler) { r.settler = s }

// changeShards lets a raised sharded campaign cross its lines once
// more. The units of its shards follow, see Settler.
func changeShards(tx *gorm.DB, before, c *models.Campaign) error {
	if c.Total <= before.Total || c.Total-c.Claimed <= c.LowStockAt {
		return nil
	}
	err := tx.Exec("UPDATE definitions SET told_line = 0 WHERE campaign_id = ?", c.ID).Error
	if err != nil {
		return fmt.Errorf("campaigns: lines of %s: %w", c.ID, err)
	}
	return nil
}

// LockLots locks a campaign's lots before the campaign,
// in the writer's order. Else changes and flushes
// deadlock. A scan of a small table would lock more.
func LockLots(tx *gorm.DB, c *models.Campaign) error {
	if tx.Name() == migrations.SQLite {
		return nil // writers are serialized
	}
	var n int
	query := "SELECT COUNT(total) FROM lots" + sqlstore.ByKey(tx) + " WHERE campaign_id = ? AND shard > 0 FOR UPDATE"
	err := tx.Raw(query, c.ID).Scan(&n).Error
	if err != nil {
		return fmt.Errorf("campaigns: lock lots of %s: %w", c.ID, err)
	}
	return nil
}

func timeText(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC().Format(sqlstore.TimeLayout)
}
