package campaigns

import (
	"context"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/writer"

	"gorm.io/gorm"
)

// firstLoanPart is how much of a new campaign its shards have on loan from the start: one part of so many. The rest is granted by need.
const firstLoanPart = 2

// shardsOf are the shards of a new campaign, each with its share of the units. What is left over is the campaign's reserve.
func shardsOf(c *models.Campaign, partitions int) (shards []models.Campaign, reserve int64) {
	reserve = c.Total
	loan := c.Total / int64(firstLoanPart*c.Shards)
	for _, id := range c.ShardIDs() {
		s := *c
		s.ID, s.Partition, s.Total = id, lua.PartitionOf(id, partitions), loan
		s.LowStockAt = 0 // is the campaign's
		shards = append(shards, s)
		reserve -= loan
	}
	return shards, reserve
}

// SumShards has the sums of a campaign of several shards be those of its lots.
func SumShards(ctx context.Context, db *gorm.DB, campaignID string) error {
	query := "UPDATE lots SET"
	args := []any(nil)
	for sum, column := range map[string]string{
		"campaign_claimed": "claimed", "campaign_synced_seq": "synced_seq", "campaign_released": "released_claims", "campaign_lost": "lost_claims",
	} {
		// MySQL reads from the table that it changes in a derived table alone.
		query += " " + sum + " = (SELECT n FROM (SELECT SUM(" + column + ") AS n FROM lots WHERE campaign_id = ?) AS all_" + column + "),"
		args = append(args, campaignID)
	}
	query += " updated_at = updated_at WHERE id = ? AND shards > 1"
	err := sqlstore.Retry(ctx, func() error { return sqlstore.On(db.WithContext(ctx)).Run(query, append(args, campaignID)...) })
	if err != nil {
		return fmt.Errorf("campaigns: sums of %s: %w", campaignID, err)
	}
	return nil
}

// readParked reads the parked claims of a campaign, those of all its shards.
func readParked(ctx context.Context, db *gorm.DB, c *models.Campaign) (*writer.ParkedClaims, error) {
	all := &writer.ParkedClaims{}
	for _, id := range c.ShardIDs() {
		one, err := writer.ReadParked(ctx, db.ConnPool, id)
		if err != nil {
			return nil, err
		}
		all.All = append(all.All, one.All...)
		all.Claims = all.Claims + one.Claims
		all.Units = all.Units + one.Units
	}
	return all, nil
}

// Shards reads the shards of a campaign, in order.
func (r *Repository) Shards(ctx context.Context, campaignID string) ([]models.Campaign, error) {
	return readShards(r.db.WithContext(ctx), campaignID)
}

// readShards reads the shards of campaigns, in order, within a transaction if db is one.
func readShards(db *gorm.DB, campaignIDs ...string) (rows []models.Campaign, err error) {
	err = db.Where("campaign_id IN ? AND shard > 0", campaignIDs).Order("campaign_id, shard").Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("campaigns: shards of %s: %w", campaignIDs, err)
	}
	return rows, nil
}
