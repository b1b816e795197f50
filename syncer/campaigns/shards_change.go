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

// Settler has the shards of a campaign have as many units as its total says.
type Settler interface {
	// Settle brings shards the units by which the total was raised, or takes those out of them by which it was lowered.
	Settle(ctx context.Context, campaignID string) error
}

// SettleBy has changes of the totals of campaigns of several shards in force at once by what s does. Else they are when the syncer has
// settled them. It is called before r is used.
func (r *Repository) SettleBy(s Settler) { r.settler = s }

// changeShards changes what a campaign of several shards has beside, in the transaction that changes it. The units of its shards follow,
// see Settler.
func changeShards(tx *gorm.DB, before, c *models.Campaign) error {
	if c.Total <= before.Total || c.Total-c.Claimed <= c.LowStockAt {
		return nil
	}
	err := sqlstore.On(tx).Run("UPDATE definitions SET told_line = 0 WHERE campaign_id = ?", c.ID) // it may cross its lines once more
	if err != nil {
		return fmt.Errorf("campaigns: lines of %s: %w", c.ID, err)
	}
	return nil
}

// LockLots locks the lots of a campaign before the campaign itself, the order of the writer: in another one, changes and flushes
// end in deadlocks. A scan of a small table would lock more.
func LockLots(tx *gorm.DB, c *models.Campaign) error {
	if tx.Name() == migrations.SQLite {
		return nil // a transaction that writes is alone
	}
	var n int
	err := sqlstore.On(tx).Scan(&n, "SELECT COUNT(total) FROM lots"+sqlstore.ByKey(tx)+" WHERE campaign_id = ? AND shard > 0 FOR UPDATE", c.ID)
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
