package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Counts counts sends and answers. Latency is measured from the
// time a send was due.
type Counts struct {
	Sent int64 // requests made
	// not sent because no connection was free in time; their wait
	// counts as latency
	Unsent   int64
	Accepted int64
	Refused  map[string]int64 // by code
	Faults   map[string]int64 // by code
	Unknown  int64            // of the faults, those that may have been accepted
	// sent late though a connection was free: the generator was too slow
	Late    int64
	Waited  int64         // sent late because all connections were busy
	LateMax time.Duration // the generator's longest delay
	Took    time.Duration // until the last answer, at least the planned duration

	latency *hdrhistogram.Histogram // µs
	last    time.Time
}

// latencyMax is the highest recorded latency; higher ones count as this.
const latencyMax = time.Hour

func newCounts() Counts {
	return Counts{
		Refused: map[string]int64{}, Faults: map[string]int64{},
		latency: hdrhistogram.New(1, latencyMax.Microseconds(), 3),
	}
}

// Merge adds the counts of from.
func (c *Counts) Merge(from *Counts) {
	c.Sent += from.Sent
	c.Unsent += from.Unsent
	c.Accepted += from.Accepted
	c.Unknown += from.Unknown
	c.Late += from.Late
	c.Waited += from.Waited
	c.LateMax = max(c.LateMax, from.LateMax)
	for code, n := range from.Refused {
		c.Refused[code] += n
	}
	for code, n := range from.Faults {
		c.Faults[code] += n
	}
	c.latency.Merge(from.latency)
	if from.last.After(c.last) {
		c.last = from.last
	}
}

// At returns the q-th percentile of the latency.
func (c *Counts) At(q float64) time.Duration {
	return time.Duration(c.latency.ValueAtPercentile(q)) * time.Microsecond
}

// Max returns the highest latency.
func (c *Counts) Max() time.Duration { return time.Duration(c.latency.Max()) * time.Microsecond }

// Rate returns answers per second.
func (c *Counts) Rate() float64 {
	if c.Took <= 0 {
		return 0
	}
	return float64(c.Sent) / c.Took.Seconds()
}

// Faulty returns the number of faults.
func (c *Counts) Faulty() int64 {
	var n int64
	for _, count := range c.Faults {
		n += count
	}
	return n
}

func (c *Counts) record(latency time.Duration) {
	// within its bounds
	_ = c.latency.RecordValue(min(max(latency, time.Microsecond), latencyMax).Microseconds())
}

func (c *Counts) unsent(waited time.Duration) {
	c.Unsent++
	c.record(waited)
}

func (c *Counts) behind(by time.Duration, busy bool) {
	switch {
	case by <= lateAfter:
	case busy:
		c.Waited++
	default:
		c.Late++
		c.LateMax = max(c.LateMax, by)
	}
}

func (c *Counts) answer(a Answer, latency time.Duration, at time.Time) {
	c.Sent++
	c.record(latency)
	if at.After(c.last) {
		c.last = at
	}
	switch {
	case a.Fault:
		c.Faults[a.Code]++
		if a.Unknown {
			c.Unknown++
		}
	case a.Code != "":
		c.Refused[a.Code]++
	default:
		c.Accepted++
	}
}
