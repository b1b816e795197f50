package campaigns

import (
	"time"

	"dibs/models"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// definitionRow is a row of MySQL's definitions.
type definitionRow struct {
	CampaignID    string `gorm:"primaryKey"`
	Kind          models.Kind
	Name          string
	Status        models.Status
	Shards        int
	PerUser       int64
	PerUserPerDay int64
	Limits        models.Limits
	ShardBy       string
	TimeZone      string
	StartsAt      *time.Time
	EndsAt        *time.Time
	LowStockAt    int64
	Currency      string
	SenderID      string
	HoldForMs     int64
	Public        string
	Version       int64
	Changes       int64
	CreatedDigest string
	CreatedAt     time.Time
}

// TableName names the table for gorm.
func (definitionRow) TableName() string { return "definitions" }

// lotRow is a row of MySQL's lots that nothing has happened to.
type lotRow struct {
	CampaignID  string `gorm:"primaryKey"`
	Shard       int    `gorm:"primaryKey;autoIncrement:false"`
	PartitionNo int
	Total       int64
	UpdatedAt   time.Time
}

// TableName names the table for gorm.
func (lotRow) TableName() string { return "lots" }

// Insert writes a campaign that nothing has happened to, and its lots, which lack the campaign itself. digest is of what its creator
// chose. created is false, and nothing is written, when there is a campaign with its id.
func Insert(tx *gorm.DB, c *models.Campaign, digest string, lots ...models.Campaign) (created bool, err error) {
	definition := definitionRow{
		CampaignID: c.ID, Kind: c.Kind, Name: c.Name, Status: c.Status, Shards: max(1, c.Shards), PerUser: c.PerUser,
		PerUserPerDay: c.PerUserPerDay, Limits: c.Limits, ShardBy: c.ShardBy, TimeZone: c.TimeZone, StartsAt: c.StartsAt, EndsAt: c.EndsAt,
		LowStockAt: c.LowStockAt, Currency: c.Currency, SenderID: c.SenderID, HoldForMs: c.HoldForMs, Public: c.Public, Version: c.Version,
		Changes: max(1, c.Changes), CreatedDigest: digest,
	}
	put := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&definition)
	if put.Error != nil || put.RowsAffected == 0 {
		return false, put.Error
	}
	rows := []lotRow{lotRowOf(c)}
	for i := range lots {
		rows = append(rows, lotRowOf(&lots[i]))
	}
	return true, tx.Create(&rows).Error
}

func lotRowOf(c *models.Campaign) lotRow {
	id, shard := models.SplitShardID(c.ID)
	return lotRow{CampaignID: id, Shard: shard, PartitionNo: c.Partition, Total: c.Total}
}
