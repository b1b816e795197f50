package lab

import (
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is the result of a lab run.
type Report struct {
	At       time.Time `json:"at"`
	Machine  []string  `json:"machine"`
	Servers  []string  `json:"servers"`
	Workload Workload  `json:"workload"`
	Results  []Result  `json:"rungs"`
}

// Result is one strategy's result over all rounds. Rates and
// costs are medians. A sell-out's errors and MySQL's lag are of
// the worst round. Counts are sums.
type Result struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Flaw  string `json:"flaw"`
	Round

	// how many times faster Dibs over HTTP is; median
	DibsRatio float64 `json:"dibs_ratio,omitempty"`
	P50Ms     float64 `json:"p50_ms"` // of accepted claims, over all rounds
	P95Ms     float64 `json:"p95_ms"`
	P99Ms     float64 `json:"p99_ms"`
	Lock      string  `json:"lock"` // left by a killed claimer, in words
	Rounds    []Round `json:"rounds"`
}

// Round is one strategy's result in one round: of the measurement, and of the
// sell-out, in which a crowd wants more than the small stock.
type Round struct {
	ClaimsPerSecond float64 `json:"claims_per_second"`
	Claims          int64   `json:"claims"` // accepted in the measurement, including those after its end
	Statements      float64 `json:"mysql_statements_a_claim"`
	RedisMicros     float64 `json:"redis_cpu_us_a_claim"`
	SettledMs       float64 `json:"settled_ms"` // from the last reply until MySQL has all claims

	SellOutRate    float64 `json:"sell_out_claims_per_second"`
	Sold           int64   `json:"sold"`             // units granted to users
	Oversold       int64   `json:"oversold"`         // units beyond the stock
	Undersold      int64   `json:"undersold"`        // units left though wanted
	OverLimitUsers int64   `json:"over_limit_users"` // users granted more than one
	Cut            bool    `json:"cut"`              // it took too long: the rest means nothing

	// Of both.
	Busy    int64  `json:"busy"`
	Failed  int64  `json:"failed"`
	Failure string `json:"failure,omitempty"` // the first

	latency *hdrhistogram.Histogram
	lock    string // left by a killed claimer; of the first round
}

func newResult(entry Entry, rounds []Round) Result {
	res := Result{Name: entry.Name, Title: entry.Title, Flaw: entry.Flaw, Rounds: rounds}
	var rates, statements, micros, sellOuts []float64
	all := newHistogram()
	for _, one := range rounds {
		rates = append(rates, one.ClaimsPerSecond)
		statements = append(statements, one.Statements)
		micros = append(micros, one.RedisMicros)
		sellOuts = append(sellOuts, one.SellOutRate)
		res.Oversold = max(res.Oversold, one.Oversold)
		res.Undersold = max(res.Undersold, one.Undersold)
		res.OverLimitUsers = max(res.OverLimitUsers, one.OverLimitUsers)
		res.SettledMs = max(res.SettledMs, one.SettledMs)
		res.Claims += one.Claims
		res.Sold += one.Sold
		res.Busy += one.Busy
		res.Failed += one.Failed
		res.Cut = res.Cut || one.Cut
		orDefault(&res.Lock, one.lock)
		orDefault(&res.Failure, one.Failure)
		if one.latency != nil {
			all.Merge(one.latency)
		}
	}
	res.ClaimsPerSecond = median(rates)
	res.Statements = median(statements)
	res.RedisMicros = median(micros)
	res.SellOutRate = median(sellOuts)
	res.P50Ms = float64(all.ValueAtQuantile(50)) / 1000
	res.P95Ms = float64(all.ValueAtQuantile(95)) / 1000
	res.P99Ms = float64(all.ValueAtQuantile(99)) / 1000
	return res
}

func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// compare computes the ratios to Dibs over HTTP, per round, if that was run.
func (r *Report) compare() {
	dibs := slices.IndexFunc(r.Results, func(res Result) bool { return res.Name == "dibs-http" })
	if dibs < 0 {
		return
	}
	for i := range r.Results {
		var ratios []float64
		for n, one := range r.Results[i].Rounds {
			if one.ClaimsPerSecond > 0 {
				ratios = append(ratios, r.Results[dibs].Rounds[n].ClaimsPerSecond/one.ClaimsPerSecond)
			}
		}
		r.Results[i].DibsRatio = median(ratios)
	}
}

// wrong reports whether any round's sell-out was wrong.
func (r *Result) wrong() bool { return r.Oversold > 0 || r.Undersold > 0 || r.OverLimitUsers > 0 }
