package writer

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// newLot is a row of lots that nothing has happened to. The claim stream is to be told of it.
type newLot struct {
	CampaignID  string `gorm:"primaryKey"`
	Shard       int    `gorm:"primaryKey;autoIncrement:false"`
	PartitionNo int
	Total       int64
	Untold      *int
	UpdatedAt   time.Time
}

// TableName names the table for gorm.
func (newLot) TableName() string { return "lots" }

// InsertDefinition writes a campaign that nothing has happened to, and its lots: the total is dealt out to shards. created is false, and
// nothing is written, if there is a campaign with its id.
func InsertDefinition(tx *gorm.DB, d *models.Definition, partitions int) (created bool, err error) {
	put := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(d)
	if put.Error != nil || put.RowsAffected == 0 {
		return false, put.Error
	}
	untold := 1
	lots := []newLot{{CampaignID: d.CampaignID, PartitionNo: lua.PartitionOf(d.CampaignID, partitions), Total: d.Total, Untold: &untold}}
	if d.Shards > 1 {
		lots[0].Untold = nil
	}
	for shard := 1; shard <= d.Shards && d.Shards > 1; shard++ {
		lots = append(lots, newLot{
			CampaignID: d.CampaignID, Shard: shard, PartitionNo: lua.PartitionOf(models.ShardID(d.CampaignID, shard), partitions),
			Total: models.DealtTo(shard, d.Shards, d.Total), Untold: &untold,
		})
	}
	return true, tx.Create(&lots).Error
}

// define writes the campaigns and changes that the stream knows and MySQL does not: one that was restored forgot them. Usually there are
// none, as definitions are made here.
func (a *application) define() error {
	newest := make(map[string]*models.Definition)
	for _, e := range a.b.lots {
		d := e.Definition
		if d == nil {
			continue
		}
		d.CampaignID = e.CampaignID
		if d.Kind == models.KindPacket { // its total is that of its packets
			d.Total = 0
		}
		if before := newest[d.CampaignID]; before == nil || before.Version < d.Version {
			newest[d.CampaignID] = d
		}
	}
	if len(newest) == 0 {
		return nil
	}
	known := make(map[string]int64)
	ids := sqlstore.Keys(slices.Collect(maps.Values(newest)), func(d **models.Definition) string { return (*d).CampaignID })
	err := sqlstore.ScanAll(a.ctx, a.tx, "SELECT campaign_id, version FROM definitions WHERE campaign_id IN "+sqlstore.Marks(len(ids)),
		sqlstore.Args(ids), func(scan func(...any) error) error {
			var id string
			var version int64
			err := scan(&id, &version)
			known[id] = version
			return err
		})
	if err != nil {
		return err
	}
	db := a.tx.Gorm(a.ctx, a.db)
	for id, d := range newest {
		version, exists := known[id]
		switch {
		case !exists:
			_, err = InsertDefinition(db, d, a.partitions)
		case version < d.Version:
			err = redefine(db, d)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// redefine writes a change that MySQL has forgotten.
func redefine(db *gorm.DB, d *models.Definition) error {
	if err := db.Save(d).Error; err != nil {
		return err
	}
	if d.Kind == models.KindPacket {
		return nil
	}
	return db.Model(&newLot{}).Where("campaign_id = ? AND shard = 0", d.CampaignID).
		Updates(map[string]any{"total": d.Total, "redis_total": 0}).Error
}
