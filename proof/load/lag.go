package load

import (
	"context"
	"slices"
	"time"

	"dibs/client"
)

// sample is the stock at one time after the start.
type sample struct {
	at              time.Duration
	claimed, synced int64
}

const samplesMax = 50_000

// Lag is MySQL's lag during a run.
type Lag struct {
	Polls      int   `json:"polls"`
	PollFaults int   `json:"poll_faults"`
	BacklogMax int64 `json:"backlog_max"` // units
	// over the polls: upper bound of the age of the oldest claim
	// missing in MySQL
	AgeP99MS float64 `json:"age_p99_ms"`
	AgeMaxMS float64 `json:"age_max_ms"`
	Backlog  []Point `json:"backlog"` // over time, thinned to at most 100 points
}

// Point is the backlog at one time after the start.
type Point struct {
	AtMS    float64 `json:"at_ms"`
	Backlog int64   `json:"backlog"` // units
}

// pointsMax limits the points of a backlog over time.
const pointsMax = 100

// Watch polls the stock until ctx ends, and returns the lag.
func Watch(ctx context.Context, every time.Duration, stock func(context.Context) (client.Stock, error)) Lag {
	start := time.Now()
	faults := 0
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var samples []sample
	for len(samples) < samplesMax {
		select {
		case <-ctx.Done():
			return lagOf(samples, faults)
		case <-ticker.C:
		}
		at := time.Since(start)
		s, err := stock(ctx)
		switch {
		case err == nil:
			samples = append(samples, sample{at, s.Claimed, s.Synced})
		case ctx.Err() == nil:
			faults++
		}
	}
	return lagOf(samples, faults)
}

// lagOf bounds the age of the oldest unsynced claim by the time
// since the last poll whose claims are all synced now.
func lagOf(samples []sample, faults int) Lag {
	lag := Lag{Polls: len(samples), PollFaults: faults, Backlog: []Point{}}
	ages := make([]time.Duration, len(samples))
	thin := max((len(samples)+pointsMax-1)/pointsMax, 1)
	before := -1
	for i, s := range samples {
		for before+1 <= i && samples[before+1].claimed <= s.synced {
			before++
		}
		if before < 0 {
			ages[i] = s.at
		} else {
			ages[i] = s.at - samples[before].at
		}
		backlog := max(s.claimed-s.synced, 0)
		lag.BacklogMax = max(lag.BacklogMax, backlog)
		if i%thin == 0 {
			lag.Backlog = append(lag.Backlog, Point{ms(s.at), backlog})
		}
	}
	if len(ages) > 0 {
		slices.Sort(ages)
		lag.AgeP99MS = ms(ages[(len(ages)-1)*99/100])
		lag.AgeMaxMS = ms(ages[len(ages)-1])
	}
	return lag
}
