package models

import (
	"cmp"
	"time"
)

// ClaimPlace is a claim's position among its user's claims, newest first: by
// ClaimedAt, then by ID. The zero value precedes all claims.
type ClaimPlace struct {
	ClaimedAt time.Time // UTC, milliseconds
	ID        string
}

// PlaceOf returns a claim's position.
func PlaceOf(c *Claim) ClaimPlace { return ClaimPlace{ClaimedAt: c.ClaimedAt.Time, ID: c.ID} }

// Compare is negative if p precedes o, newest first.
func (p ClaimPlace) Compare(o ClaimPlace) int {
	return cmp.Or(o.ClaimedAt.Compare(p.ClaimedAt), cmp.Compare(o.ID, p.ID))
}

// ClaimsQuery selects one user's claims, newest first.
type ClaimsQuery struct {
	UserID     string
	CampaignID string     // "": of all campaigns
	After      ClaimPlace // zero: from the newest
	Limit      int
}

// CampaignClaimsQuery selects a campaign's claims that have a row.
type CampaignClaimsQuery struct {
	CampaignID string
	Status     ClaimStatus // "": any
	After      string      // the last id of the previous page; "": from the newest
	Limit      int
}

// WithHold sets the end of the hold; 0 is no hold.
func (c Claim) WithHold(forMs int64) Claim {
	if forMs > 0 {
		expires := NewTime(c.ClaimedAt.Add(time.Duration(forMs) * time.Millisecond))
		c.ExpiresAt = &expires
	}
	return c
}
