package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Workload is what every strategy gets alike.
type Workload struct {
	Strategies  []string `json:"strategies"`  // names of strategies; empty is all
	Users       int      `json:"users"`       // of the sell-out; each asks once more often than PerUser allows
	Units       int64    `json:"units"`       // of the sell-out
	PerUser     int64    `json:"per_user"`    // units a user may have
	Connections int      `json:"connections"` // claims at the same time, over all processes
	Processes   int      `json:"processes"`   // claimers, each a process of its own
	SQLPool     int      `json:"sql_pool"`    // connections to MySQL of the strategies that book by themselves, over all processes
	Rounds      int      `json:"rounds"`

	WarmUp     time.Duration `json:"warm_up_ns"`
	Duration   time.Duration `json:"duration_ns"`    // of one measurement
	Patience   time.Duration `json:"patience_ns"`    // how long a claim waits for a lock
	RetryPause time.Duration `json:"retry_pause_ns"` // before it asks again, on average
}

// Defaults of Workload. The crowd is the one that Dibs' own tests send.
const (
	DefaultUsers       = 600
	DefaultUnits       = 300
	DefaultPerUser     = 1
	DefaultConnections = 200
	DefaultProcesses   = 2
	DefaultSQLPool     = 16
	DefaultRounds      = 3
	DefaultWarmUp      = 500 * time.Millisecond
	DefaultDuration    = 2 * time.Second
	DefaultPatience    = 3 * time.Second
	DefaultRetryPause  = 10 * time.Millisecond // a free lock is soon seen by one of a crowd
)

// Bounds of Workload.
const (
	usersMax       = 1_000_000
	unitsMax       = 1_000_000
	connectionsMax = 2_000
	processesMax   = 64
	roundsMax      = 100
	durationMax    = 10 * time.Minute
)

// WithDefaults returns a copy with defaults where nothing is set.
func (w Workload) WithDefaults() Workload {
	orDefault(&w.Users, DefaultUsers)
	orDefault(&w.Units, DefaultUnits)
	orDefault(&w.PerUser, DefaultPerUser)
	orDefault(&w.Connections, DefaultConnections)
	orDefault(&w.Processes, DefaultProcesses)
	orDefault(&w.SQLPool, DefaultSQLPool)
	orDefault(&w.Rounds, DefaultRounds)
	orDefault(&w.WarmUp, DefaultWarmUp)
	orDefault(&w.Duration, DefaultDuration)
	orDefault(&w.Patience, DefaultPatience)
	orDefault(&w.RetryPause, DefaultRetryPause)
	if len(w.Strategies) == 0 {
		for _, r := range Strategies() {
			w.Strategies = append(w.Strategies, r.Name)
		}
	}
	return w
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns nil, or ErrConfig wrapped with the flag of the field and what it may be.
func (w Workload) Validate() error {
	for _, number := range []struct {
		flag               string
		value, least, most int64
	}{
		{flag: "users", value: int64(w.Users), least: 1, most: usersMax},
		{flag: "units", value: w.Units, least: 1, most: unitsMax},
		{flag: "per-user", value: w.PerUser, least: 1, most: unitsMax},
		{flag: "processes", value: int64(w.Processes), least: 1, most: processesMax},
		{flag: "connections", value: int64(w.Connections), least: int64(w.Processes), most: connectionsMax},
		{flag: "sql-pool", value: int64(w.SQLPool), least: int64(w.Processes), most: connectionsMax},
		{flag: "rounds", value: int64(w.Rounds), least: 1, most: roundsMax},
	} {
		if number.value < number.least || number.value > number.most {
			return fmt.Errorf("%w: --%s must be %d to %d, not %d", ErrConfig, number.flag, number.least, number.most, number.value)
		}
	}
	for _, span := range []struct {
		flag  string
		value time.Duration
	}{{"duration", w.Duration}, {"warm-up", w.WarmUp}, {"patience", w.Patience}, {"retry-pause", w.RetryPause}} {
		if span.value < time.Millisecond || span.value > durationMax {
			return fmt.Errorf("%w: --%s must be 1ms to %s, not %s", ErrConfig, span.flag, durationMax, span.value)
		}
	}
	return w.validateDemand()
}

// validateDemand refuses a crowd that could not buy everything, and one that cannot be had of a list with one each.
func (w Workload) validateDemand() error {
	if int64(w.Users)*w.PerUser < w.Units {
		return fmt.Errorf("%w: --users: %d users of %d each cannot buy %d units", ErrConfig, w.Users, w.PerUser, w.Units)
	}
	for _, name := range w.Strategies {
		if _, ok := StrategyNamed(name); !ok {
			return fmt.Errorf("%w: --strategies: no strategy %q; there are %s", ErrConfig, name, strings.Join(names(), ", "))
		}
	}
	if w.PerUser != 1 && slices.Contains(w.Strategies, redPacketStrategy().Name) {
		return fmt.Errorf("%w: --per-user must be 1 with red-packet, whose list is one packet a user", ErrConfig)
	}
	return nil
}

func names() []string {
	var all []string
	for _, r := range Strategies() {
		all = append(all, r.Name)
	}
	return all
}

// share is what part i of n gets of a whole.
func share(whole, i, n int) int { return whole/n + min(max(whole%n-i, 0), 1) }
