package models

import "time"

// WebhookEvent is a row of webhook_events: an event that an endpoint has not
// taken.
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

// WebhooksCounted is the most events of an endpoint that a WebhookLag counts.
const WebhooksCounted = 100_000

// WebhookLag is what an endpoint has not taken.
type WebhookLag struct {
	Endpoint string
	Waiting  int64      // events that are tried again, up to WebhooksCounted
	Oldest   *time.Time // of these; nil: there are none
	Parked   int64      // events that were given up, up to WebhooksCounted
}

// Full reports whether there may be more than a count says.
func (WebhookLag) Full(count int64) bool { return count >= WebhooksCounted }
