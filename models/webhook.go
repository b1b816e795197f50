package models

import "time"

// WebhookEvent is a row of webhook_events: an event that an endpoint hasn't
// accepted.
type WebhookEvent struct {
	Endpoint   string `gorm:"primaryKey"`
	CampaignID string `gorm:"primaryKey"`
	No         int64  `gorm:"primaryKey;autoIncrement:false"` // the order of delivery
	EventID    string
	Type       EventType
	At         time.Time // of the event
	Payload    []byte
	CreatedAt  time.Time
	ParkedAt   *time.Time // nil: still retried
	Reason     string     // why it was parked
	Announced  int        // 1: a later delivery has informed the endpoint that it is missing
}

// TableName names the table for gorm.
func (WebhookEvent) TableName() string { return "webhook_events" }

// WebhooksCounted bounds the events that a WebhookLag counts.
const WebhooksCounted = 100_000

// WebhookLag is the events that an endpoint hasn't accepted.
type WebhookLag struct {
	Endpoint string
	Waiting  int64      // being retried, up to WebhooksCounted
	Oldest   *time.Time // of these; nil: there are none
	Parked   int64      // given up, up to WebhooksCounted
}

// Full reports whether a count reached its bound.
func (WebhookLag) Full(count int64) bool { return count >= WebhooksCounted }
