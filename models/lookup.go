package models

import (
	"cmp"
	"time"
)

// ClaimPlace is the place of a claim among its user's claims, newest first: by
// ClaimedAt, then by ID. The zero place is before all.
type ClaimPlace struct {
	ClaimedAt time.Time // UTC, milliseconds
	ID        string
}

// PlaceOf is the place of a claim.
func PlaceOf(c *Claim) ClaimPlace { return ClaimPlace{ClaimedAt: c.ClaimedAt.Time, ID: c.ID} }

// Compare is below 0 when p comes before o, newest first.
func (p ClaimPlace) Compare(o ClaimPlace) int {
	return cmp.Or(o.ClaimedAt.Compare(p.ClaimedAt), cmp.Compare(o.ID, p.ID))
}

// ClaimsQuery asks for claims of one user, newest first.
type ClaimsQuery struct {
	UserID     string
	CampaignID string     // "": of all campaigns
	After      ClaimPlace // zero: from the newest on
	Limit      int
}

// CampaignClaimsQuery asks for the claims of a campaign that have their row.
type CampaignClaimsQuery struct {
	CampaignID string
	Status     ClaimStatus // "": any
	After      string      // the id of the last claim of the page before; "": from the newest on
	Limit      int
}

// Claim returns the claim of a claim.accepted; holdForMs is its campaign's.
func (e *Event) Claim(holdForMs int64) Claim {
	c := Claim{
		ID: e.ID, CampaignID: e.CampaignID, UserID: e.UserID, Quantity: e.Quantity, Seq: e.Seq, Status: ClaimClaimed, ClaimedAt: e.At,
		PacketID: e.PacketID, Amount: e.Amount, Currency: e.Currency,
	}
	return c.WithHold(holdForMs)
}

// Claim returns the row as storefronts see it; currency and holdForMs are its
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

// withHoldOf has the hold of a claim end by what became of it.
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

// WithHold returns the claim with the time at which its hold ends; a hold of 0
// never ends.
func (c Claim) WithHold(forMs int64) Claim {
	if forMs > 0 {
		expires := NewTime(c.ClaimedAt.Add(time.Duration(forMs) * time.Millisecond))
		c.ExpiresAt = &expires
	}
	return c
}
