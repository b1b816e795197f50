package models

import "time"

// Definition is everything people decided about a campaign: a row of MySQL's
// definitions, and part of events in the claim stream.
type Definition struct {
	CampaignID    string     `gorm:"primaryKey" json:"-"`
	Kind          Kind       `json:"kind"`
	Name          string     `json:"name,omitempty"`
	Status        Status     `json:"status"`
	Shards        int        `json:"shards,omitempty"` // 1 for most
	PerUser       int64      `json:"per_user,omitempty"`
	PerUserPerDay int64      `json:"per_user_per_day,omitempty"`
	Limits        Limits     `json:"limits,omitempty"` // with the times from which they count
	ShardBy       string     `json:"shard_by,omitempty"`
	TimeZone      string     `json:"time_zone"`
	StartsAt      *time.Time `json:"starts_at,omitempty"`
	EndsAt        *time.Time `json:"ends_at,omitempty"`
	LowStockAt    int64      `json:"low_stock_at,omitempty"`
	Currency      string     `json:"currency,omitempty"`
	SenderID      string     `json:"sender_id,omitempty"`
	HoldForMs     int64      `json:"hold_for_ms,omitempty"`
	HoldMaxMs     int64      `json:"hold_max_ms,omitempty"`
	// the last campaign.paused that it includes
	PauseID       *string   `json:"pause_id,omitempty"`
	Public        string    `json:"public,omitempty"`
	Version       int64     `json:"version"`
	Changes       int64     `json:"changes"`
	CreatedDigest string    `json:"created_digest"` // of what the campaign's creator chose
	CreatedAt     time.Time `json:"created_at"`
	// Dealt is what shards shared at first, and nil for one shard or packets.
	// All changes since are in their streams.
	Dealt *int64 `json:"dealt,omitempty"`

	Total int64 `gorm:"->" json:"total"` // units; a column of lots
}

// TableName names the table for gorm.
func (Definition) TableName() string { return "definitions" }

// DefinitionOf is the definition of a new campaign.
func DefinitionOf(c *Campaign, createdDigest string) Definition {
	d := Definition{
		CampaignID: c.ID, Kind: c.Kind, Name: c.Name, Status: c.Status, Shards: max(1, c.Shards), PerUser: c.PerUser,
		PerUserPerDay: c.PerUserPerDay, Limits: c.Limits, ShardBy: c.ShardBy, TimeZone: c.TimeZone, StartsAt: c.StartsAt, EndsAt: c.EndsAt,
		LowStockAt: c.LowStockAt, Currency: c.Currency, SenderID: c.SenderID, HoldForMs: c.HoldForMs,
		HoldMaxMs: c.HoldMaxMs, PauseID: c.PauseID, Public: c.Public,
		Version: c.Version, Changes: max(1, c.Changes), CreatedDigest: createdDigest, Total: c.Total,
	}
	if c.IsSharded() && c.Kind != KindPacket {
		d.Dealt = new(c.Total)
	}
	return d
}
