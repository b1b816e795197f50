package lab

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// What a worker process gets, and what it answers: one line of JSON each, over its standard input and output.

// order is what a worker does next.
type order struct {
	Open *opening `json:"open,omitempty"`
	Load *load    `json:"load,omitempty"`
}

// opening has a worker make its Strategy.
type opening struct {
	Place    Place         `json:"place"`
	Strategy string        `json:"strategy"`
	Campaign Campaign      `json:"campaign"`
	Share    int           `json:"share"` // which of the workers it is, from 0
	Of       int           `json:"of"`    // how many there are
	Claimers int           `json:"claimers"`
	SQLPool  int           `json:"sql_pool"`
	Patience time.Duration `json:"patience_ns"`
	Retry    time.Duration `json:"retry_ns"`
	Lease    time.Duration `json:"lease_ns"`
	DieAt    Step          `json:"die_at,omitempty"` // the process kills itself when a claim comes here
}

// load has a worker's claimers ask: for a while, each claim by a user of its own; or every ask of a sell-out that is this
// worker's.
type load struct {
	For     time.Duration `json:"for_ns,omitempty"`
	Users   int           `json:"users,omitempty"` // of a sell-out
	Asks    int           `json:"asks,omitempty"`  // of each user
	AtMost  time.Duration `json:"at_most_ns"`      // no claim begins after this
	Prefix  string        `json:"prefix"`          // of user ids
	Present bool          `json:"present"`         // answer with who was given how much
}

// done is a worker's answer to an order.
type done struct {
	Error    string           `json:"error,omitempty"` // the order could not be followed
	Outcomes map[string]int64 `json:"outcomes,omitempty"`
	InTime   int64            `json:"in_time"`           // claims that were answered within For
	Failed   int64            `json:"failed"`            // claims that ended in an error
	Failure  string           `json:"failure,omitempty"` // the first of them
	Cut      bool             `json:"cut"`               // AtMost was over before the last ask
	Took     time.Duration    `json:"took_ns"`
	Had      map[string]int64 `json:"had,omitempty"`     // user id -> units
	Latency  []byte           `json:"latency,omitempty"` // of claims that were accepted, an encoded histogram in µs
}

// latencyMax bounds what is distinguished, in µs.
const latencyMax = 120_000_000

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, latencyMax, 3) }

// mergeInto adds a worker's latencies to those of others.
func (d *done) mergeInto(all *hdrhistogram.Histogram) error {
	if len(d.Latency) == 0 {
		return nil
	}
	one, err := hdrhistogram.Decode(d.Latency)
	if err != nil {
		return fmt.Errorf("lab: latencies of a worker: %w", err)
	}
	all.Merge(one)
	return nil
}

func line(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(b, '\n'), err
}
