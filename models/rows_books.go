package models

import "time"

// Reconciliation is a row of reconciliations: the result of one comparison of
// Redis and MySQL.
type Reconciliation struct {
	ID             string `gorm:"primaryKey"` // UUIDv7
	CampaignID     string
	RedisRemaining *int64 // units; nil when Redis did not hold the campaign
	MySQLRemaining int64  `gorm:"column:mysql_remaining"` // units
	Backlog        *int64 // accepted claims without a row; nil when Redis did not hold the campaign
	Drift          *int64 // units, Redis less MySQL; nil without a common watermark
	At             time.Time
}

// TableName names the table for gorm.
func (Reconciliation) TableName() string { return "reconciliations" }

// Repair is a row of repairs: one change that a repair made.
type Repair struct {
	ID          string    `gorm:"primaryKey" json:"-"` // UUIDv7
	LotID       string    `gorm:"column:campaign_id" json:"campaign_id"`
	What        string    `json:"what"` // claims, campaigns or redis
	ValueBefore string    `json:"before"`
	ValueAfter  string    `json:"after"`
	At          time.Time `json:"at"`
}

// TableName names the table for gorm.
func (Repair) TableName() string { return "repairs" }
