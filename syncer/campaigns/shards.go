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

// shardRow is a shard as it is stored.
type shardRow struct {
	models.Campaign `gorm:"embedded"`

	CampaignID string
	Shard      int
	Granted    int64
}

// TableName names the table for gorm.
func (shardRow) TableName() string { return "campaign_shards" }

// firstLoanPart is how much of a new campaign its shards have on loan from the start: one part of so many. The rest is granted by need.
const firstLoanPart = 2

// createShards stores the shards of a new campaign, each with its share of the units. What is left over is the campaign's reserve, which
// is returned.
func createShards(tx *gorm.DB, c *models.Campaign, partitions int) (reserve int64, err error) {
	reserve = c.Total
	loan := c.Total / int64(firstLoanPart*c.Shards)
	rows := make([]shardRow, c.Shards)
	for i, id := range c.ShardIDs() {
		rows[i] = shardRow{Campaign: *c, CampaignID: c.ID, Shard: i + 1, Granted: loan}
		s := &rows[i].Campaign
		s.ID, s.Partition, s.Total, s.Remaining, s.Reserve = id, lua.PartitionOf(id, partitions), loan, loan, 0
		s.LowStockAt = 0 // is the campaign's
		reserve -= loan
	}
	return reserve, tx.Create(&rows).Error
}

// SumShards has the counters of a campaign be the sums of its shards'.
func SumShards(ctx context.Context, db *gorm.DB, campaignID string) error {
	sum := func(column string) string {
		return "(SELECT COALESCE(SUM(s." + column + "), 0) FROM campaign_shards s WHERE s.campaign_id = campaigns.id)"
	}
	err := sqlstore.Retry(ctx, func() error {
		return db.WithContext(ctx).Exec("UPDATE campaigns SET remaining = CASE WHEN total > "+sum("claimed")+" THEN total - "+sum("claimed")+
			" ELSE 0 END, claimed = "+sum("claimed")+", synced_seq = "+sum("synced_seq")+", released_claims = "+sum("released_claims")+
			", lost_claims = "+sum("lost_claims")+" WHERE id = ? AND shards > 1", campaignID).Error
	})
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
		all.Claims, all.Units = all.Claims+one.Claims, all.Units+one.Units
	}
	return all, nil
}

// Shards reads the shards of a campaign, in order.
func (r *Repository) Shards(ctx context.Context, campaignID string) ([]models.Campaign, error) {
	return readShards(r.db.WithContext(ctx), campaignID)
}

// readShards reads the shards of campaigns, in order, within a transaction if db is one.
func readShards(db *gorm.DB, campaignIDs ...string) (rows []models.Campaign, err error) {
	err = db.Table(shardRow{}.TableName()).Where("campaign_id IN ?", campaignIDs).Order("campaign_id, shard").Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("campaigns: shards of %s: %w", campaignIDs, err)
	}
	return rows, nil
}
