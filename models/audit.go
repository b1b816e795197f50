package models

import (
	"encoding/json"
	"time"
)

// What stands in audit_log.action.
const (
	AuditCampaignCreated = "campaign.created"
	AuditCampaignChanged = "campaign.changed"
	AuditCampaignClosed  = "campaign.closed"
	AuditPacketsAdded    = "packets.added"
	AuditBooksRepaired   = "books.repaired"
	AuditTokenRefused    = "token.refused"
)

// AuditEntry is a row of audit_log: who changed what, and what was there before.
type AuditEntry struct {
	ID         string          `json:"id"` // UUIDv7: sorts by time
	At         Time            `json:"at"`
	Actor      string          `json:"actor"` // "" of a token that is nobody's
	RequestID  string          `json:"request_id"`
	Action     string          `json:"action"`
	CampaignID string          `json:"campaign_id,omitempty"`
	Before     json.RawMessage `json:"before,omitempty"`
	After      json.RawMessage `json:"after,omitempty"`
}

// AuditQuery selects entries of the audit log, the newest first.
type AuditQuery struct {
	CampaignID string    // "": of all
	Since      time.Time // zero: from the beginning
	Before     string    // entries older than that of this id; "": from the newest
	Limit      int
}
