package models

import "time"

// ClaimStatus is the state of a claim. MySQL is the authority.
type ClaimStatus string

// The states of a claim.
const (
	ClaimClaimed  ClaimStatus = "claimed"
	ClaimRedeemed ClaimStatus = "redeemed"
	ClaimReleased ClaimStatus = "released"
	ClaimExpired  ClaimStatus = "expired"

	// ClaimParked is a claim whose row MySQL refuses. It counts as claimed.
	// It can't be redeemed or released until an operator decides.
	ClaimParked ClaimStatus = "parked"
)

// Live reports whether a claim counts against stock and limits.
func (s ClaimStatus) Live() bool { return s == ClaimClaimed || s == ClaimRedeemed }

// Claim is an accepted claim in the API.
type Claim struct {
	ID         string      `json:"id"`
	CampaignID string      `json:"campaign_id"`
	UserID     string      `json:"user_id"`
	Quantity   int64       `json:"quantity"`
	Seq        int64       `json:"seq"` // from 1, without gaps, per campaign and shard
	Status     ClaimStatus `json:"status" enum:"claimed,redeemed,released,expired,parked"`
	ClaimedAt  Time        `json:"claimed_at"`
	PacketID   string      `json:"packet_id,omitempty"`
	Amount     *int64      `json:"amount,omitempty"` // minor units
	Currency   string      `json:"currency,omitempty"`
	ExpiresAt  *Time       `json:"expires_at,omitempty"`

	OrderID       string `json:"order_id,omitempty" doc:"the order that redeemed it"`
	RedeemedAt    *Time  `json:"redeemed_at,omitempty"`
	ReleasedAt    *Time  `json:"released_at,omitempty" doc:"when it was released or expired"`
	ReleaseReason string `json:"release_reason,omitempty" doc:"as sent with the release"`
}

// Stock is a campaign's stock at one moment, in units.
type Stock struct {
	CampaignID string `json:"campaign_id"`
	Total      int64  `json:"total"`
	Remaining  int64  `json:"remaining" doc:"units that can be claimed, by Redis"`
	Claimed    int64  `json:"claimed" doc:"units of live claims, by Redis"`
	Synced     int64  `json:"synced" doc:"of these, in MySQL"`
	Backlog    int64  `json:"backlog" doc:"of these, on their way to MySQL"`
	Parked     int64  `json:"parked" doc:"of these, refused by MySQL: a person has to decide"`
	LostClaims int64  `json:"lost_claims" doc:"claims that Redis accepted and lost: their units are not for sale"`
	LostUnits  int64  `json:"lost_units" doc:"units of these"`
	Drift      int64  `json:"drift" doc:"Redis less MySQL at a common watermark; 0 unless something is wrong"`
	Low        bool   `json:"low"`
	AsOf       Time   `json:"as_of"`
}

// TimeLayout is RFC 3339 in UTC with milliseconds. All times of the API and
// of events have it.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Time is a time whose JSON has TimeLayout.
type Time struct{ time.Time }

// NewTime truncates t to UTC milliseconds.
func NewTime(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// TimeFromMs converts milliseconds since 1970.
func TimeFromMs(ms int64) Time { return Time{time.UnixMilli(ms).UTC()} }

// MarshalJSON writes TimeLayout.
func (t Time) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(TimeLayout)+2)
	b = append(b, '"')
	b = t.AppendFormat(b, TimeLayout)
	return append(b, '"'), nil
}

// UnmarshalJSON reads any RFC 3339 time and truncates it to UTC milliseconds.
func (t *Time) UnmarshalJSON(b []byte) error {
	var std time.Time
	if err := std.UnmarshalJSON(b); err != nil {
		return err
	}
	*t = NewTime(std)
	return nil
}
