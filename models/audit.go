package models

import (
	"encoding/json"
	"slices"
	"sort"
	"strings"
	"time"
)

// What stands in audit_log.action.
const (
	AuditCampaignCreated = "campaign.created"
	AuditCampaignChanged = "campaign.changed"
	AuditCampaignClosed  = "campaign.closed"
	AuditCampaignDeleted = "campaign.deleted"
	AuditPacketsAdded    = "packets.added"
	AuditCampaignPaused  = "campaign.paused" // while MySQL was unavailable
	AuditGapAccepted     = "gap.accepted"
	AuditClaimReopened   = "claim.reopened"
	AuditClaimExtended   = "claim.extended"
	AuditBooksRepaired   = "books.repaired"
	AuditClaimsArchived  = "claims.archived"
	AuditGroupAdded      = "group.added"
	AuditGroupRemoved    = "group.removed"
	AuditParkedReplayed  = "parked.replayed"
	AuditParkedDiscarded = "parked.discarded"
	AuditSignedIn        = "console.signed_in"
	AuditSignedOut       = "console.signed_out"
	AuditTokensReloaded  = "tokens.reloaded"
	AuditTokenRefused    = "token.refused"
)

// AuditEntry is a row of audit_log: who changed what, and the values before.
type AuditEntry struct {
	ID         string          `json:"id"` // UUIDv7: sorts by time
	At         Time            `json:"at"`
	Actor      string          `json:"actor"` // "" for a token without a name
	RequestID  string          `json:"request_id"`
	Action     string          `json:"action"`
	CampaignID string          `json:"campaign_id,omitempty"`
	Before     json.RawMessage `json:"before,omitempty"`
	After      json.RawMessage `json:"after,omitempty"`
}

// AuditQuery selects entries of the audit log, the newest first.
type AuditQuery struct {
	CampaignID string    // "": all campaigns
	Since      time.Time // zero: from the beginning
	Before     string    // entries older than this id; "": from the newest
	Limit      int
}

// Change describes the change, such as "total 100 -> 200, version 1 -> 2".
func (e *AuditEntry) Change() string {
	var before, after map[string]json.RawMessage
	_ = json.Unmarshal(e.Before, &before) // missing or unreadable JSON counts as empty
	_ = json.Unmarshal(e.After, &after)
	names := make([]string, 0, len(after))
	for name := range after {
		names = append(names, name)
	}
	for name := range before {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for i, name := range names {
		was := auditValue(before[name])
		is := auditValue(after[name])
		if e.Before == nil {
			names[i] = name + " " + is
		} else {
			names[i] = name + " " + was + " -> " + is
		}
	}
	return strings.Join(names, ", ")
}

func auditValue(raw json.RawMessage) string {
	if text := strings.Trim(string(raw), `"`); text != "" && text != "null" {
		return text
	}
	return "-"
}
