package lab

import (
	"cmp"
	"fmt"
	"time"
)

// Workload is the same for every strategy.
type Workload struct {
	Strategies  []string `json:"strategies"`  // names of strategies; empty is all
	Users       int      `json:"users"`       // of the sell-out; each asks twice for its one unit
	Units       int64    `json:"units"`       // of the sell-out
	Connections int      `json:"connections"` // concurrent claims, over all processes
	Processes   int      `json:"processes"`   // processes that claim
	// connections to MySQL of strategies without Dibs, over all processes
	SQLPool int `json:"sql_pool"`
	Rounds  int `json:"rounds"`

	// of one measurement, after a warm-up of a quarter of it
	Duration   time.Duration `json:"duration_ns"`
	Patience   time.Duration `json:"patience_ns"`    // limit of a claim's wait for a lock
	RetryPause time.Duration `json:"retry_pause_ns"` // average pause before a retry
}

// DefaultWorkload is all strategies and the crowd of Dibs' own tests.
func DefaultWorkload() Workload {
	return Workload{
		Users: 600, Units: 300, Connections: 200, Processes: 2, SQLPool: 16, Rounds: 3,
		Duration: 2 * time.Second, Patience: 3 * time.Second,
		RetryPause: 10 * time.Millisecond, // a free lock is found soon by one of a crowd
	}
}

// Entries returns the workload's strategies.
func (w *Workload) Entries() ([]Entry, error) {
	if len(w.Strategies) == 0 {
		return Strategies(), nil
	}
	var entries []Entry
	for _, name := range w.Strategies {
		entry, ok := StrategyNamed(name)
		if !ok {
			return nil, fmt.Errorf("%w: --strategies: no %q; see dibs lab --list", ErrConfig, name)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// Validate returns nil, or ErrConfig wrapped with the field's
// flag and its range.
func (w *Workload) Validate() error {
	const (
		crowdMax       = 1_000_000
		connectionsMax = 2_000
		timeMax        = 10 * time.Minute
	)
	err := cmp.Or(
		within("users", w.Users, 1, crowdMax),
		within("units", w.Units, 1, crowdMax),
		within("processes", w.Processes, 1, 64),
		within("connections", w.Connections, w.Processes, connectionsMax),
		within("sql-pool", w.SQLPool, w.Processes, connectionsMax),
		within("rounds", w.Rounds, 1, 100),
		within("duration", w.Duration, time.Millisecond, timeMax),
		within("patience", w.Patience, time.Millisecond, timeMax),
		within("retry-pause", w.RetryPause, time.Millisecond, timeMax),
	)
	if err == nil && int64(w.Users) < w.Units {
		err = fmt.Errorf("%w: --users: %d users cannot buy %d units", ErrConfig, w.Users, w.Units)
	}
	if err == nil {
		_, err = w.Entries()
	}
	return err
}

func within[T cmp.Ordered](flag string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("%w: --%s must be %v to %v, not %v", ErrConfig, flag, least, most, value)
	}
	return nil
}

func share(whole, i, n int) int { return whole/n + min(max(whole%n-i, 0), 1) }
