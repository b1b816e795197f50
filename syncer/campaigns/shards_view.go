package campaigns

import (
	"context"
	"errors"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer/parking"

	"gorm.io/gorm"
)

// ShardsOf reads a campaign's shards, at least one, from MySQL and then
// Redis. For a shard that is not in Redis, MySQL has all. Errors:
// models.ErrNotFound, and those of Redis.
func (r *Repository) ShardsOf(ctx context.Context, id string) (of models.ShardsOf, err error) {
	var c models.Campaign
	var rows []models.Campaign
	err = r.db.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) {
		c, err = Read(tx, id)
		if err != nil || !c.IsSharded() {
			rows = []models.Campaign{c}
			return err
		}
		err = tx.Raw("SELECT COUNT(*) FROM stock_moves WHERE credited_at IS NULL AND campaign_id = ?", id).
			Scan(&of.MovesOpen).Error
		if err != nil {
			return err
		}
		rows, err = ReadLots(tx, id)
		return err
	})
	if err != nil {
		return of, err
	}
	of.CampaignID = id
	of.Total = c.Total
	of.LowStockAt = c.LowStockAt
	of.Shards = make([]models.ShardFigures, len(rows))
	for i := range rows {
		of.Shards[i], err = r.figures(ctx, &rows[i], &of)
		if err != nil {
			return of, err
		}
	}
	return of, nil
}

func (r *Repository) figures(ctx context.Context, c *models.Campaign, of *models.ShardsOf) (f models.ShardFigures, err error) {
	parked, err := parking.Read(ctx, r.db, c.ID)
	if err != nil {
		return f, err
	}
	_, shard := models.SplitShardID(c.ID)
	f = models.ShardFigures{
		Shard: max(1, shard), Partition: c.Partition, Granted: c.Total, Seq: c.SyncedSeq, SyncedSeq: c.SyncedSeq,
		Claimed: c.Claimed + parked.Units + c.LostUnits,
	}
	released := c.ReleasedClaims
	sold := c.SoldEver() + parked.Units
	state, err := r.sender.scripts.State(ctx, c.ID)
	switch {
	case err == nil:
		f.Claimed = state.Taken
		f.Seq = state.Seq
		released = state.Released
		sold = state.Sold
		f.Granted = state.Total
	case IsResident(c) && !errors.Is(err, lua.ErrAbsent) && !errors.Is(err, lua.ErrDamaged):
		return f, err
	}
	of.Released += released
	of.Sold += sold
	f.Free = max(0, f.Granted-f.Claimed)
	return f, nil
}
