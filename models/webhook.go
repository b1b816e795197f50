package models

import "time"

// WebhookEvent is a row of webhook_events: an event that an endpoint has not taken.
type WebhookEvent struct {
	Endpoint   string `gorm:"primaryKey"`
	CampaignID string `gorm:"primaryKey"`
	No         int64  `gorm:"primaryKey;autoIncrement:false"` // the order of delivery
	EventID    string
	Type       EventType
	At         time.Time // of the event
	Payload    []byte
	CreatedAt  time.Time
	ParkedAt   *time.Time // nil: it is still tried
	Reason     string     // why it was parked
	Announced  int        // 1: a later delivery has told the endpoint that it is missing
}

// TableName names the table for gorm.
func (WebhookEvent) TableName() string { return "webhook_events" }
