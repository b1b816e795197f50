package campaigns

import (
	"context"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/parking"

	"gorm.io/gorm"
)

// SumShards sets the sums of a sharded campaign to those of its lots.
// Errors: models.ErrNotFound and those of the database.
func SumShards(ctx context.Context, db *gorm.DB, campaignID string) error {
	c, err := Read(db.WithContext(ctx), campaignID)
	if err != nil || !c.IsSharded() {
		return err
	}
	var set []string
	var args []any
	for _, column := range []string{"claimed", "synced_seq", "released_claims", "sold", "lost_claims", "lost_units",
		"given_up_claims", "given_up_units"} {
		// MySQL can read the table that it updates only in a derived table.
		sum := "SELECT SUM(" + column + ") AS n FROM lots WHERE campaign_id = ? AND shard > 0"
		set = append(set, column+" = (SELECT n FROM ("+sum+") AS all_"+column+")")
		args = append(args, campaignID)
	}
	query := "UPDATE lots SET " + strings.Join(set, ", ") + " WHERE id = ?"
	err = sqlstore.InTx(ctx, db, func(tx *gorm.DB) error {
		if err := LockLots(tx, &c); err != nil {
			return err
		}
		return tx.Exec(query, append(args, campaignID)...).Error
	})
	if err != nil {
		return fmt.Errorf("campaigns: sums of %s: %w", campaignID, err)
	}
	return nil
}

func readParked(ctx context.Context, db *gorm.DB, c *models.Campaign) (*parking.Claims, error) {
	all := &parking.Claims{}
	for _, id := range c.ShardIDs() {
		one, err := parking.Read(ctx, db, id)
		if err != nil {
			return nil, err
		}
		all.All = append(all.All, one.All...)
		all.Claims += one.Claims
		all.Units += one.Units
	}
	return all, nil
}

// ReadLots reads the shards of campaigns
// in order, in a transaction if db is one.
func ReadLots(db *gorm.DB, campaignIDs ...string) (rows []models.Campaign, err error) {
	err = db.Where("campaign_id IN ? AND shard > 0", campaignIDs).Order("campaign_id, shard").Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("campaigns: lots of %s: %w", campaignIDs, err)
	}
	return rows, nil
}

// Values of from in Excess.
const (
	WithRaises    = 0 // count raises on their way to the shards
	BetweenShards = 1 // count moves between shards only
)

// Excess returns by how many units the shards of campaigns exceed the
// total; negative is a lack. It includes open moves from shards
// numbered from or higher, and waiting flushes. Campaigns in balance
// are omitted. An empty id means all.
func Excess(db *gorm.DB, id string, from int) (units map[string]int64, err error) {
	var rows []struct {
		ID    string
		Units int64
	}
	query := "SELECT id, units FROM (SELECT w.campaign_id AS id," +
		" (SELECT SUM(s.total) FROM lots s WHERE s.campaign_id = w.campaign_id AND s.shard > 0)" +
		" + COALESCE((SELECT SUM(m.units) FROM stock_moves m WHERE m.credited_at IS NULL" +
		" AND m.campaign_id = w.campaign_id AND m.from_shard >= ?), 0)" +
		" + COALESCE((SELECT SUM(f.moved) FROM stock_flushes f WHERE f.waiting = 1 AND f.campaign_id = w.campaign_id), 0)" +
		" - w.total AS units FROM lots w JOIN definitions d ON d.campaign_id = w.campaign_id WHERE w.shard = 0" +
		" AND (w.campaign_id = ? OR ? = '') AND d.shards > 1 AND d.kind <> ? AND d.status <> ?) x WHERE units <> 0"
	err = db.Raw(query, from, id, id, models.KindPacket, models.StatusClosed).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("campaigns: units of shards: %w", err)
	}
	units = make(map[string]int64, len(rows))
	for i := range rows {
		units[rows[i].ID] = rows[i].Units
	}
	return units, nil
}
