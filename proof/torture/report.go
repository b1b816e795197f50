package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what a run did, its cost, and its violations.
type Report struct {
	Seed       uint64 `json:"seed"`
	Topology   string `json:"topology"`
	Durability string `json:"durability"`
	Shards     int    `json:"shards"`
	Serve      bool   `json:"serve"`
	TookMs     int64  `json:"took_ms"`
	Rounds     int    `json:"rounds"`
	Lossy      int    `json:"lossy_rounds"`
	// ended by a failure of the kit's servers, and not checked
	Void     int   `json:"void_rounds"`
	Claims   int64 `json:"claims"`          // rows
	Answered int64 `json:"claims_answered"` // claims known to a client
	// of these, without a row, by a fault that may lose them
	Lost int64 `json:"claims_lost"`
	// lost claims that the operator gave up
	GivenUp int64 `json:"seqs_given_up"`
	Ghosts  int64 `json:"ghost_credits"` // credits of packets whose claim was lost that way
	// claims of packets without a credit, as their event was lost that way
	Uncredited int64 `json:"uncredited"`
	BooksRead  int64 `json:"books_read"` // number of reads during faults

	// time in which APIs' /readyz reported not ready, without draining
	UnreadyMs      int64 `json:"unready_ms"`
	UnreadyWrongMs int64 `json:"unready_serving_ms"` // of that, while claims were served
	Exits          int   `json:"exits"`              // processes that ended by themselves

	// of a feature and a fault, or of two features of one campaign
	Covered []string `json:"pairs_covered"`
	Missing []string `json:"pairs_missing"` // that this run could have covered
	// pairs of features that can't be covered, and why; for faults
	// see Skipped
	Never   []string `json:"pairs_excluded"`
	covered pairs

	Faults  []FaultRecord `json:"faults"`
	Skipped []string      `json:"skipped"` // what this machine or topology can't do, and why
	Broken  []string      `json:"broken"`  // violated promises
}

// pairsOf splits a planner's table into covered and missing pairs.
func (r *Report) pairsOf(p *planner) {
	r.Never = p.never
	missing := r.covered.without(p.table)
	for _, one := range p.table {
		if slices.Contains(missing, one) {
			r.Missing = append(r.Missing, one.String())
		} else {
			r.Covered = append(r.Covered, one.String())
		}
	}
}

// MissingByFeature lists the missing pairs, one line per feature.
func (r *Report) MissingByFeature() (lines []string) {
	last := ""
	for _, one := range r.Missing {
		feature, other, _ := strings.Cut(one, times)
		if feature == last {
			lines[len(lines)-1] += ", " + other
		} else {
			lines = append(lines, one)
		}
		last = feature
	}
	return lines
}

// FaultRecord is one fault that happened.
type FaultRecord struct {
	AtMs  int64  `json:"at_ms"` // since the run's start
	Round int    `json:"round"`
	Name  string `json:"name"`
	What  string `json:"what"`
	// concurrent faults; the cost is of all of them
	Beside []string `json:"beside,omitempty"`
	TookMs int64    `json:"took_ms"`
	Cost
}

// head describes the fault, without its cost.
func (s *FaultRecord) head() string {
	what := s.Name
	if s.What != "" {
		what += ": " + s.What
	}
	if n := len(s.Beside); n > 0 {
		what += fmt.Sprintf(" + %d others", n)
	}
	return fmt.Sprintf("%7.1fs  round %-3d %-58s %6.2fs", float64(s.AtMs)/1000, s.Round, what, float64(s.TookMs)/1000)
}

func (s *FaultRecord) String() string {
	var refused []string
	for _, code := range slices.Sorted(maps.Keys(s.Refused)) {
		refused = append(refused, fmt.Sprintf("%d %s", s.Refused[code], code))
	}
	if len(refused) == 0 {
		refused = []string{"none"}
	}
	return fmt.Sprintf("%s  %4d answers, uncertain: %s, longest gap %s", s.head(), s.Answers, strings.Join(refused, ", "), gap(s.GapMs))
}

func gap(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
