package lab

import (
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is what a run of the lab found.
type Report struct {
	At       time.Time `json:"at"`
	Machine  []string  `json:"machine"`
	Servers  []string  `json:"servers"`
	Workload Workload  `json:"workload"`
	Results  []Result  `json:"rungs"`
	Lines    []Line    `json:"lines,omitempty"`
}

// Result is what one strategy did over all rounds.
type Result struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Flaw  string `json:"flaw"`

	ClaimsPerSecond float64 `json:"claims_per_second"`          // median of the rounds
	DibsRatio       float64 `json:"dibs_ratio,omitempty"`       // how many times Dibs over HTTP is faster; median of the rounds
	P50Ms           float64 `json:"p50_ms"`                     // of accepted claims, all rounds
	P95Ms           float64 `json:"p95_ms"`                     //
	P99Ms           float64 `json:"p99_ms"`                     //
	Oversold        int64   `json:"oversold"`                   // units beyond the stock; the worst round
	Undersold       int64   `json:"undersold"`                  // units left though someone wanted them; the worst round
	OverLimitUsers  int64   `json:"over_limit_users"`           // who were given more than a user may have; the worst round
	Lock            Lock    `json:"lock"`                       // that a killed claimer left behind
	Statements      float64 `json:"mysql_statements_a_claim"`   // median of the rounds
	RedisMicros     float64 `json:"redis_cpu_us_a_claim"`       // median of the rounds
	SellOutRate     float64 `json:"sell_out_claims_per_second"` // of the sell-out; median of the rounds
	SettledMs       float64 `json:"settled_ms"`                 // from the last answer until the books have all; the worst round

	Rounds []Round `json:"rounds"`
}

// Lock is what is there after a claimer was killed where it hurts most.
type Lock struct {
	Left    int   `json:"left"`     // locks
	ForEver bool  `json:"for_ever"` // nothing ends it
	EndsMs  int64 `json:"ends_ms"`  // else when it ends by itself
	Wedged  bool  `json:"wedged"`   // the next claim was not served
}

// Round is what one strategy did in one round.
type Round struct {
	ClaimsPerSecond float64 `json:"claims_per_second"`
	Claims          int64   `json:"claims"` // accepted in the measurement, those after its end too
	Busy            int64   `json:"busy"`
	Failed          int64   `json:"failed"`
	Failure         string  `json:"failure,omitempty"`
	Statements      float64 `json:"mysql_statements_a_claim"`
	RedisMicros     float64 `json:"redis_cpu_us_a_claim"`
	SettledMs       float64 `json:"settled_ms"`
	SellOut         SellOut `json:"sell_out"`

	latency *hdrhistogram.Histogram
}

// SellOut is what became of a small stock and a crowd that wants more than there is.
type SellOut struct {
	Sold            int64   `json:"sold"` // units that users were told they have
	Oversold        int64   `json:"oversold"`
	Undersold       int64   `json:"undersold"`
	OverLimitUsers  int64   `json:"over_limit_users"`
	Busy            int64   `json:"busy"`
	Failed          int64   `json:"failed"`
	Failure         string  `json:"failure,omitempty"`
	Cut             bool    `json:"cut"` // it took too long and was ended: what is left says nothing
	ClaimsPerSecond float64 `json:"claims_per_second"`
}

// Line is a ratio that Dibs is to reach.
type Line struct {
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Target float64 `json:"target"`
	Met    bool    `json:"met"`
}

// dibsName is the strategy that others are compared with.
const dibsName = "dibs-http"

// newResult sums up the rounds of a strategy.
func newResult(r Entry, rounds []Round, lock Lock) Result {
	res := Result{Name: r.Name, Title: r.Title, Flaw: r.Flaw, Lock: lock, Rounds: rounds}
	res.ClaimsPerSecond = medianOf(rounds, func(r Round) float64 { return r.ClaimsPerSecond })
	res.Statements = medianOf(rounds, func(r Round) float64 { return r.Statements })
	res.RedisMicros = medianOf(rounds, func(r Round) float64 { return r.RedisMicros })
	res.SellOutRate = medianOf(rounds, func(r Round) float64 { return r.SellOut.ClaimsPerSecond })
	all := newHistogram()
	for _, one := range rounds {
		res.Oversold = max(res.Oversold, one.SellOut.Oversold)
		res.Undersold = max(res.Undersold, one.SellOut.Undersold)
		res.OverLimitUsers = max(res.OverLimitUsers, one.SellOut.OverLimitUsers)
		res.SettledMs = max(res.SettledMs, one.SettledMs)
		if one.latency != nil {
			all.Merge(one.latency)
		}
	}
	res.P50Ms = quantileMs(all, 50)
	res.P95Ms = quantileMs(all, 95)
	res.P99Ms = quantileMs(all, 99)
	return res
}

func quantileMs(h *hdrhistogram.Histogram, q float64) float64 {
	return float64(h.ValueAtQuantile(q)) / 1000
}

func medianOf(rounds []Round, figure func(Round) float64) float64 {
	var values []float64
	for _, r := range rounds {
		values = append(values, figure(r))
	}
	return median(values)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// compare fills in the ratios to Dibs, round by round, and the lines. Without Dibs over HTTP there are none.
func (r *Report) compare() {
	dibs := r.find(dibsName)
	if dibs == nil {
		return
	}
	for i := range r.Results {
		r.Results[i].DibsRatio = ratioOf(dibs.Rounds, r.Results[i].Rounds)
	}
	for _, line := range []struct {
		name   string
		target float64
	}{{"lock-per-coupon", 50}, {"lua-update", 10}, {"for-update", 10}} {
		if other := r.find(line.name); other != nil {
			r.Lines = append(r.Lines, Line{
				What: "Dibs over HTTP / " + other.Title, Value: other.DibsRatio, Target: line.target, Met: other.DibsRatio >= line.target,
			})
		}
	}
}

func ratioOf(dibs, other []Round) float64 {
	var ratios []float64
	for i := range min(len(dibs), len(other)) {
		if other[i].ClaimsPerSecond > 0 {
			ratios = append(ratios, dibs[i].ClaimsPerSecond/other[i].ClaimsPerSecond)
		}
	}
	return median(ratios)
}

func (r *Report) find(name string) *Result {
	for i := range r.Results {
		if r.Results[i].Name == name {
			return &r.Results[i]
		}
	}
	return nil
}

// wrong reports whether a sell-out of the strategy was not what it should be, in any round.
func (r *Result) wrong() bool { return r.Oversold > 0 || r.Undersold > 0 || r.OverLimitUsers > 0 }
