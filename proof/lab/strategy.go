package lab

import (
	"context"
	"fmt"
	"slices"
)

// Outcome is what a claimer is told.
type Outcome int

// The outcomes of a claim.
const (
	Claimed   Outcome = iota + 1
	SoldOut           // nothing is left
	OverLimit         // this user has had what a user may have
	Busy              // a lock or a transaction was not had in time: surely not claimed
	outcomes          // one more than the last
)

// String is for people and for JSON keys.
func (o Outcome) String() string {
	switch o {
	case Claimed:
		return "claimed"
	case SoldOut:
		return "sold_out"
	case OverLimit:
		return "over_limit"
	case Busy:
		return "busy"
	case outcomes:
	}
	return fmt.Sprintf("outcome %d", int(o))
}

// Strategy is one strategy at work in one process, for one campaign.
type Strategy interface {
	// Prepare puts the campaign's stock where the strategy keeps it. One process calls it, once, before any claim.
	Prepare(ctx context.Context) error
	// Claim asks for one unit for a user. Any number of goroutines call it at once.
	Claim(ctx context.Context, user string) (Outcome, error)
	// Close lets go of what New opened.
	Close() error
}

// Settler is a Strategy whose books follow its answers.
type Settler interface {
	// Settle returns when the books hold every claim that was answered.
	Settle(ctx context.Context) error
}

// Step is a place in a claim where the lab may have someone wait, fail or die.
type Step string

// The steps of a claim. Not every strategy has them all.
const (
	StepLocked  Step = "locked"  // the lock is taken, and nothing else is done
	StepRead    Step = "read"    // stock and limit are read, nothing is written
	StepWritten Step = "written" // the unit is taken, and no one else has been told
)

// Entry is a strategy's place on the ladder.
type Entry struct {
	Name  string // as on the command line
	Title string // for people
	Flaw  string // in a few words

	// Sound says that it sells every unit once while every process lives.
	Sound bool
	// DieAt is the worst step to die at.
	DieAt Step

	New func(Env) (Strategy, error)
	// Serve starts what must run beside the claimers and returns where they reach it. Nil: nothing must.
	Serve func(ctx context.Context, env Env) (Service, error)
}

// Service is what runs beside the claimers of a strategy.
type Service struct {
	Endpoint string // base URL; "" when claimers need none
	Stop     func(ctx context.Context) error
}

// Strategies is the ladder from its foot up.
func Strategies() []Entry {
	return slices.Concat([]Entry{readThenWriteStrategy(), mutexStrategy()}, lockStrategies(), []Entry{
		watchdogStrategy(), pipelineStrategy(), watchStrategy(), forUpdateStrategy(), conditionalUpdateStrategy(), lockPerCouponStrategy(),
		luaUpdateStrategy(), sumFlushStrategy(), copyStockStrategy(), redPacketStrategy(), dibsPackagesStrategy(), dibsHTTPStrategy(),
	})
}

// StrategyNamed finds a strategy.
func StrategyNamed(name string) (Entry, bool) {
	for _, r := range Strategies() {
		if r.Name == name {
			return r, true
		}
	}
	return Entry{}, false
}
