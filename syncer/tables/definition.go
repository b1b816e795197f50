package tables

import (
	"time"

	"dibs/lua"
	"dibs/models"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// newLot is the row of a new lot. The claim stream does not have it yet.
type newLot struct {
	CampaignID  string `gorm:"primaryKey"`
	Shard       int    `gorm:"primaryKey;autoIncrement:false"`
	PartitionNo int
	Total       int64
	Untold      *int
	UpdatedAt   time.Time
}

func (newLot) TableName() string { return "lots" }

// Define writes a new campaign, or one that MySQL lost, and its lots. If
// the id is taken, it writes nothing and created is false.
func Define(tx *gorm.DB, d *models.Definition, partitions int) (created bool, err error) {
	put := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(d)
	if put.Error != nil || put.RowsAffected == 0 {
		return false, put.Error
	}
	untold := 1
	lots := []newLot{{
		CampaignID: d.CampaignID, PartitionNo: lua.PartitionOf(d.CampaignID, partitions), Total: d.Total, Untold: &untold,
	}}
	if d.Shards > 1 {
		lots[0].Untold = nil
	}
	dealt := d.Total
	if d.Dealt != nil {
		dealt = *d.Dealt
	}
	for shard := 1; shard <= d.Shards && d.Shards > 1; shard++ {
		lots = append(lots, newLot{
			CampaignID: d.CampaignID, Shard: shard, Total: models.DealtTo(shard, d.Shards, dealt), Untold: &untold,
			PartitionNo: lua.PartitionOf(models.ShardID(d.CampaignID, shard), partitions),
		})
	}
	return true, tx.Create(&lots).Error
}

// Redefine writes a change that MySQL has
// lost, unless it has a newer one by now.
func Redefine(db *gorm.DB, d *models.Definition) error {
	done := db.Model(d).Select("*").Where("version < ?", d.Version).Updates(d) //nolint:unqueryvet // all columns, zeros too
	if done.Error != nil || done.RowsAffected == 0 || d.Kind == models.KindPacket {
		return done.Error
	}
	return db.Model(&newLot{}).Where("campaign_id = ? AND shard = 0", d.CampaignID).
		Updates(map[string]any{"total": d.Total, "redis_total": 0}).Error
}
