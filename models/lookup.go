package models

import "time"

// ClaimPlace is where a claim stands among its user's, newest first: by ClaimedAt, then by ID. The zero place is before all.
type ClaimPlace struct {
	ClaimedAt time.Time // UTC, milliseconds
	ID        string
}

// PlaceOf is the place of a claim.
func PlaceOf(c *Claim) ClaimPlace { return ClaimPlace{ClaimedAt: c.ClaimedAt.Time, ID: c.ID} }

// Compare is below 0 when p comes before o, newest first.
func (p ClaimPlace) Compare(o ClaimPlace) int {
	if c := o.ClaimedAt.Compare(p.ClaimedAt); c != 0 {
		return c
	}
	switch {
	case p.ID > o.ID:
		return -1
	case p.ID < o.ID:
		return 1
	default:
		return 0
	}
}

// ClaimsQuery asks for claims of one user, newest first.
type ClaimsQuery struct {
	UserID     string
	CampaignID string     // "" is of all campaigns
	After      ClaimPlace // zero is from the newest on
	Limit      int
}

// Claim is the claim that an event of type claim.accepted tells of; holdForMs is its campaign's.
func (e *Event) Claim(holdForMs int64) Claim {
	c := Claim{
		ID: e.ID, CampaignID: e.CampaignID, UserID: e.UserID, Quantity: e.Quantity, Seq: e.Seq, Status: ClaimClaimed, ClaimedAt: e.At,
		PacketID: e.PacketID, Amount: e.Amount, Currency: e.Currency,
	}
	return c.WithHold(holdForMs)
}

// Claim is the row as storefronts see it; currency and holdForMs are its campaign's.
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
	return c.WithHold(holdForMs).WithResolution(r)
}

// WithHold is the claim with the end of its campaign's hold; 0 is for ever.
func (c Claim) WithHold(forMs int64) Claim {
	if forMs > 0 {
		expires := NewTime(c.ClaimedAt.Add(time.Duration(forMs) * time.Millisecond))
		c.ExpiresAt = &expires
	}
	return c
}
