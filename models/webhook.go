package models

import "time"

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
