package load

import (
	"fmt"
	"time"

	"dibs/client"
)

// Report is the JSON report of a run. Times are in milliseconds,
// rates per second.
type Report struct {
	URL          string           `json:"url"`
	Servers      string           `json:"servers"` // "embedded", or their addresses
	CampaignID   string           `json:"campaign_id"`
	Plan         PlanReport       `json:"plan"`
	Ramp         *RampReport      `json:"ramp,omitempty"`
	Sent         int64            `json:"sent"` // without the warm-up, like all that follows
	Unsent       int64            `json:"unsent"`
	Accepted     int64            `json:"accepted"`
	Refused      map[string]int64 `json:"refused"`
	Errors       map[string]int64 `json:"errors"`
	AchievedRate float64          `json:"achieved_rate"`
	Latency      Latency          `json:"latency_ms"` // from the time a send was due
	Late         int64            `json:"late"`       // sends delayed by the generator
	LateMaxMS    float64          `json:"late_max_ms"`
	Waited       int64            `json:"waited_for_connection"`
	Sync         Lag              `json:"sync"`
	// of all claims, including warm-up and ramp
	Books Books `json:"books"`
}

// PlanReport is the requested run.
type PlanReport struct {
	Rate        float64 `json:"rate"`
	DurationMS  float64 `json:"duration_ms"`
	WarmUpMS    float64 `json:"warm_up_ms"`
	Connections int     `json:"connections"`
	Users       int64   `json:"users"`
	Stock       int64   `json:"stock"` // units
	Keys        bool    `json:"keys"`
	Batch       bool    `json:"batch"` // claims shared requests
}

// RampReport is a search and its result.
type RampReport struct {
	P99LimitMS float64 `json:"p99_limit_ms"`
	TopRate    float64 `json:"top_rate"` // 0: none held
	Hold       float64 `json:"hold"`     // measured share of it
	Steps      []Step  `json:"steps"`
}

// Latency has percentiles in milliseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// Books compares the service's final data with its answers.
type Books struct {
	Accepted      int64    `json:"accepted"` // answers
	Unknown       int64    `json:"unknown"`  // answers that may have been claims
	Claimed       int64    `json:"claimed"`  // by the service
	Synced        int64    `json:"synced"`   // of these, in the database
	SyncedAfterMS float64  `json:"synced_after_ms"`
	Agree         bool     `json:"agree"`
	Wrong         []string `json:"wrong"`
}

func (b *Bench) newReport() Report {
	return Report{
		URL: b.Target.BaseURL, CampaignID: b.Target.CampaignID, Refused: map[string]int64{}, Errors: map[string]int64{},
		Plan: PlanReport{
			Rate: b.Plan.Rate, DurationMS: ms(b.Plan.Duration), WarmUpMS: ms(b.Plan.WarmUp), Connections: b.Plan.Connections,
			Users: b.Target.Users, Stock: b.Stock, Keys: b.Target.Keys, Batch: b.Target.Batch,
		},
		Sync: Lag{Backlog: []Point{}},
	}
}

func (r *Report) fill(c *Counts) {
	r.Sent = c.Sent
	r.Unsent = c.Unsent
	r.Accepted = c.Accepted
	r.Refused = c.Refused
	r.Errors = c.Faults
	r.AchievedRate = c.Rate()
	r.Late = c.Late
	r.LateMaxMS = ms(c.LateMax)
	r.Waited = c.Waited
	r.Latency = Latency{P50: ms(c.At(50)), P90: ms(c.At(90)), P99: ms(c.At(99)), P999: ms(c.At(99.9)), Max: ms(c.Max())}
}

// compare counts one unit for each accepted answer; a missing
// answer may be one more.
func compare(total int64, all *totals, s *client.Stock, took time.Duration) Books {
	b := Books{
		Accepted: all.accepted, Unknown: all.unknown, Claimed: s.Claimed, Synced: s.Synced, SyncedAfterMS: ms(took), Wrong: []string{},
	}
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			b.Wrong = append(b.Wrong, fmt.Sprintf(format, args...))
		}
	}
	wrong(s.Claimed < all.accepted, "%d claims were accepted, %d are booked", all.accepted, s.Claimed)
	wrong(s.Claimed > all.accepted+all.unknown, "%d claims are booked, at most %d were asked for and not refused",
		s.Claimed, all.accepted+all.unknown)
	wrong(s.Claimed > total, "%d of %d units were claimed", s.Claimed, total)
	wrong(s.Total != total || s.Remaining != total-s.Claimed, "%d left of %d after %d claims", s.Remaining, s.Total, s.Claimed)
	wrong(s.Synced != s.Claimed, "%d of %d claims are in the database", s.Synced, s.Claimed)
	wrong(s.Drift != 0, "the database is off by %d", s.Drift)
	b.Agree = len(b.Wrong) == 0
	return b
}
