package campaigns

import (
	"context"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/writer"

	"gorm.io/gorm"
)

// firstLoanPart is how much of a new campaign its shards have on loan from the start: one part of so many. The rest stays in the reserve
// until it is needed.
const firstLoanPart = 2

// lotsOf are the lots of a new campaign of several shards, and what their units came by: all were credited to the reserve, which debited to
// each shard its share.
func lotsOf(c *models.Campaign, partitions int) (lots []models.Campaign, rows []models.Event) {
	loan := c.Total / int64(firstLoanPart*c.Shards)
	at := models.NewTime(sqlstore.Now())
	add := func(lot *models.Campaign, kind models.EventType, peer int, units int64) {
		if units == 0 {
			return
		}
		id, shard := models.SplitShardID(lot.ID)
		lot.TSeq++
		rows = append(rows, models.Event{
			CampaignID: id, Shard: shard, TSeq: lot.TSeq, Type: kind, Peer: peer, Quantity: units, Cumulative: units, At: at,
		})
	}
	for _, id := range c.LotIDs() {
		lot := *c
		lot.ID = id
		lot.Partition = lua.PartitionOf(id, partitions)
		lot.Total = loan
		lot.LowStockAt = 0 // is the campaign's
		lots = append(lots, lot)
	}
	reserve := &lots[c.Shards]
	reserve.Total = c.Total - loan*int64(c.Shards)
	add(reserve, models.EventUnitsCredited, 0, c.Total)
	for i := range c.Shards {
		add(reserve, models.EventUnitsDebited, i+1, loan)
		add(&lots[i], models.EventUnitsCredited, models.ReserveLot, loan)
	}
	return lots, rows
}

// SumShards has the sums of a campaign of several shards be those of its lots. Errors: models.ErrNotFound and those of the database.
func SumShards(ctx context.Context, db *gorm.DB, campaignID string) error {
	c, err := Read(db.WithContext(ctx), campaignID)
	if err != nil || !c.IsSharded() {
		return err
	}
	var set []string
	var args []any
	for _, column := range []string{"claimed", "synced_seq", "released_claims", "lost_claims"} {
		// MySQL reads from the table that it changes in a derived table alone.
		sum := "SELECT SUM(" + column + ") AS n FROM lots WHERE campaign_id = ? AND shard > 0"
		set = append(set, column+" = (SELECT n FROM ("+sum+") AS all_"+column+")")
		args = append(args, campaignID)
	}
	query := "UPDATE lots SET " + strings.Join(set, ", ") + " WHERE id = ?"
	err = sqlstore.Retry(ctx, func() error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := lockLots(tx, &c); err != nil {
				return err
			}
			return sqlstore.On(tx).Run(query, append(args, campaignID)...)
		})
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
		all.Claims += one.Claims
		all.Units += one.Units
	}
	return all, nil
}

// ReadLots reads the lots of campaigns of several shards, in order, each with its reserve last, within a transaction if db is one.
func ReadLots(db *gorm.DB, campaignIDs ...string) (rows []models.Campaign, err error) {
	err = db.Where("campaign_id IN ? AND shard > 0", campaignIDs).Order("campaign_id, shard").Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("campaigns: lots of %s: %w", campaignIDs, err)
	}
	return rows, nil
}
