package event

import (
	"strings"
	"time"

	"dibs/models"
)

// Place is an event's position in a ledger, which is ordered by At,
// then by ID. The zero value precedes all events.
type Place struct {
	At time.Time // UTC, milliseconds
	ID string
}

// PlaceOf returns an event's position.
func PlaceOf(e *Event) Place { return Place{At: e.At.Time, ID: e.ID} }

// Before reports whether p precedes o.
func (p Place) Before(o Place) bool {
	return p.At.Before(o.At) || p.At.Equal(o.At) && p.ID < o.ID
}

// String is the position as a cursor: time, comma, id.
func (p Place) String() string { return p.At.Format(models.TimeLayout) + "," + p.ID }

// ParsePlace reads what String wrote; "" is the zero value. Errors:
// ErrID.
func ParsePlace(text string) (Place, error) {
	if text == "" {
		return Place{}, nil
	}
	at, id, _ := strings.Cut(text, ",")
	when, err := time.Parse(models.TimeLayout, at)
	if err != nil || models.CheckClaimID(id) != nil {
		return Place{}, models.ErrID
	}
	return Place{At: when, ID: id}, nil
}

// Settlement sums up one day's events.
type Settlement struct {
	Date     string              `json:"date"`
	TimeZone string              `json:"time_zone"`
	From     models.Time         `json:"from" doc:"when the day begins in that zone"`
	To       models.Time         `json:"to" doc:"when the day ends, exclusive"`
	Final    bool                `json:"final" doc:"every event of the day is in the sums"`
	Missing  []SettlementMissing `json:"missing" nullable:"false" doc:"what final waits for; at most 100"`
	Sums     []SettlementSum     `json:"sums" nullable:"false" doc:"by campaign, then by type"`
}

// SettlementMissing is a campaign whose day is incomplete.
type SettlementMissing struct {
	CampaignID string `json:"campaign_id,omitempty" doc:"absent if the day itself is not over"`
	Reason     string `json:"reason"`
}

// SettlementSum sums up a campaign's events of one type.
type SettlementSum struct {
	CampaignID string `json:"campaign_id"`
	Currency   string `json:"currency" doc:"ISO 4217; empty when the campaign names none"`
	Type       Type   `json:"type"`
	Claims     int64  `json:"claims"`
	Units      int64  `json:"units"`
	Amount     int64  `json:"amount" doc:"minor units; of claims.given_up the known amounts, which are to be reversed"`
}
