package live

import (
	"encoding/json"

	"dibs/models"
)

// Event is a campaign's figures at one moment. Figures are units, except
// rates, which are claims a second.
type Event struct {
	CampaignID string        `json:"campaign_id"`
	At         models.Time   `json:"at"`
	Name       string        `json:"name,omitempty"`
	Status     models.Status `json:"status" enum:"open,paused,closed"`
	Total      int64         `json:"total"`
	Remaining  int64         `json:"remaining" doc:"what can still be claimed"`
	Claimed    int64         `json:"claimed"`
	Synced     int64         `json:"synced" doc:"of these, in MySQL"`
	Backlog    int64         `json:"backlog" doc:"of these, on their way to MySQL"`
	Parked     int64         `json:"parked" doc:"of these, refused by MySQL: a person has to decide"`
	LostClaims int64         `json:"lost_claims,omitempty" doc:"claims that Redis accepted and lost: their units are not for sale"`
	LostUnits  int64         `json:"lost_units,omitempty" doc:"units of these"`
	Drift      int64         `json:"drift" doc:"Redis less MySQL at a common watermark; 0 unless something is wrong"`
	Low        bool          `json:"low"`

	AcceptedPerS float64            `json:"accepted_per_s" doc:"claims, over all API processes"`
	RefusedPerS  map[string]float64 `json:"refused_per_s" doc:"claims by code, over all API processes, a second behind"`
	P50Ms        *float64           `json:"p50_ms,omitempty" doc:"half of the claims were answered within, over all API processes, a second behind; absent: there was none"`
	P99Ms        *float64           `json:"p99_ms,omitempty" doc:"99 of 100 of them were"`

	BacklogAgeMs int64       `json:"backlog_age_ms" doc:"age of the oldest claim that is on its way to MySQL, as this process saw it"`
	FlushMs      int64       `json:"flush_ms" doc:"the slowest flush into MySQL of the last two seconds, at least 1; 0: there was none"`
	InRedis      bool        `json:"in_redis" doc:"false: the figures are MySQL's"`
	BooksAsOf    models.Time `json:"books_as_of" doc:"when MySQL was read; the year 1: never, so synced, backlog, parked and drift are unknown"`
	First        bool        `json:"first,omitempty" doc:"the first event of a watch: the rates are not known yet"`

	MovesOpen bool    `json:"moves_open,omitempty" doc:"of a campaign of several shards: units are on their way between them"`
	Shards    []Shard `json:"shards,omitempty" doc:"of a campaign of several shards: each one; the figures above are their sums"`
}

func (e *Event) frame() []byte { return frameOf("", e) }

// frameOf encodes an event of this type; "" is that of Event.
func frameOf(kind string, data any) []byte {
	body, err := json.Marshal(data)
	if err != nil { // numbers and strings always marshal
		return nil
	}
	frame := []byte("data: ")
	if kind != "" {
		frame = []byte("event: " + kind + "\ndata: ")
	}
	return append(append(frame, body...), "\n\n"...)
}
