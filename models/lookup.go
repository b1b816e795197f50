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

// Claim returns the claim of a claim.accepted. holdForMs is the campaign's.
func (e *Event) Claim(holdForMs int64) Claim {
	c := Claim{
		ID: e.ID, CampaignID: e.CampaignID, UserID: e.UserID, Quantity: e.Quantity, Seq: e.Seq, Status: ClaimClaimed, ClaimedAt: e.At,
		PacketID: e.PacketID, Amount: e.Amount, Currency: e.Currency,
	}
	return c.WithHold(holdForMs)
}

// Claim returns the row for the API. currency and holdForMs are the
// campaign's.
func (r *ClaimRow) Claim(currency string, holdForMs int64) Claim {
	c := Claim{
		ID: r.ID, CampaignID: r.CampaignID, UserID: r.UserID, Quantity: r.Quantity, Seq: r.Seq, Status: r.Status,
		ClaimedAt: NewTime(r.ClaimedAt), Amount: r.Amount,
	}
	if r.PacketID != nil {
		c.PacketID = *r.PacketID
	}
	if r.Amount != nil {
		c.Currency = currency
	}
	return c.WithHold(holdForMs).withHoldOf(r, holdForMs).WithResolution(r)
}

// withHoldOf sets the end of the hold if it was extended or reopened.
func (c Claim) withHoldOf(r *ClaimRow, forMs int64) Claim {
	switch {
	case forMs == 0:
		return c
	case r.HeldUntil != nil:
		c.ExpiresAt = new(NewTime(*r.HeldUntil))
	case r.ReopenedAt != nil:
		c.ExpiresAt = new(NewTime(r.ReopenedAt.Add(time.Duration(forMs) * time.Millisecond)))
	}
	return c
}

// WithHold sets the end of the hold; 0 is no hold.
func (c Claim) WithHold(forMs int64) Claim {
	if forMs > 0 {
		expires := NewTime(c.ClaimedAt.Add(time.Duration(forMs) * time.Millisecond))
		c.ExpiresAt = &expires
	}
	return c
}
