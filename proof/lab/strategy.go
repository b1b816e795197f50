package lab

import "context"

// Outcome is the result of a claim.
type Outcome string

// The outcomes of a claim.
const (
	Claimed   Outcome = "claimed"
	SoldOut   Outcome = "sold_out"   // nothing is left
	OverLimit Outcome = "over_limit" // this user has a unit
	Busy      Outcome = "busy"       // no lock or transaction in time: certainly not claimed
)

// Strategy is one strategy in one process, for one campaign.
type Strategy interface {
	// Prepare stores the campaign's stock. One process calls it,
	// once, before any claim.
	Prepare(ctx context.Context) error
	// Claim claims one unit for a user. It is called concurrently.
	Claim(ctx context.Context, user string) (Outcome, error)
	// Close closes what New opened.
	Close() error
}

// Settler is a Strategy whose MySQL data lags behind its answers.
type Settler interface {
	// Settle waits until MySQL has every answered claim.
	Settle(ctx context.Context) error
}

// Step is a point in a claim where the lab may make it wait, fail or die.
type Step string

// The steps of a claim. Not every strategy has all.
const (
	StepLocked  Step = "locked"  // the lock is taken, nothing else is done
	StepRead    Step = "read"    // stock and limit are read, nothing is written
	StepWritten Step = "written" // the unit is taken, and no other process knows
)

// Entry describes a strategy.
type Entry struct {
	Name  string // as on the command line
	Title string // for people
	Flaw  string // in a few words

	Sound  bool  // sells every unit once while no process dies
	DieAt  Step  // the worst step to die at
	Plenty int64 // a measurement's stock, if it is rows or entries; 0: a billion

	New func(Env) (Strategy, error)
	// Serve starts the service used by claimers and returns its URL.
	// Nil: there is none.
	Serve func(ctx context.Context, env Env) (endpoint string, stop func() error, err error)
}

// Strategies lists all strategies, the simplest first.
func Strategies() []Entry { //nolint:funlen // a table
	const forEver = "a holder that dies leaves the lock for ever"
	return []Entry{
		{Name: "read-then-write", Title: "read, then write", DieAt: StepRead,
			Flaw: "two who read the same stock both sell it",
			New:  direct((*counter).sell, (*counter).prepareStock)},
		{Name: "mutex", Title: "in-process mutex", DieAt: StepRead,
			Flaw: "a second process has a mutex of its own", New: newMutex},

		lockEntry("setnx", "SETNX", "a holder that fails or dies leaves the lock for ever",
			locked{lock: setNX, forgets: true}),
		lockEntry("setnx-defer", "SETNX, deferred unlock", forEver, locked{lock: setNX}),
		lockEntry("setnx-expire", "SETNX, then EXPIRE",
			"who dies between the two leaves the lock for ever", locked{lock: setNX, then: expire}),
		lockEntry("set-nx-px", "SET NX PX",
			"a holder slower than its lease lets a second in, then frees the second's lock",
			locked{lock: setNXPX}),
		lockEntry("owner-token", "SET NX PX, owner token",
			"a holder slower than its lease still lets a second in", locked{lock: ownerToken}),
		{Name: "watchdog", Title: "watchdog lease, re-entrant", Sound: true, DieAt: StepLocked,
			Flaw: "a holder that froze and wakes still believes; one claim at a time",
			New: direct((*counter).sellRenewed, (*counter).prepareStock,
				preload(watchdogTake, watchdogRenew, watchdogGive))},

		{Name: "pipeline", Title: "Redis pipeline", DieAt: StepRead,
			Flaw: "saves round trips, and lets others in between",
			New:  direct((*counter).sellPipelined, (*counter).prepareStock)},
		{Name: "watch", Title: "WATCH, MULTI, EXEC", Sound: true, DieAt: StepRead,
			Flaw: "a crowd retries each other; nothing is rolled back if a command fails",
			New:  direct((*counter).sellWatched, (*counter).prepareStock)},

		{Name: "for-update", Title: "MySQL SELECT … FOR UPDATE", Sound: true, DieAt: StepRead,
			Flaw: "all claims queue behind one row, whatever its holder waits for",
			New:  direct((*counter).sellLockedRow, (*counter).prepareRow)},
		{Name: "skip-locked", Title: "MySQL FOR UPDATE SKIP LOCKED", Sound: true, DieAt: StepRead,
			Flaw:   "a row for each unit; claims wait for the last ones before they are refused as sold out",
			Plenty: 50_000, New: direct((*counter).sellUnit, (*counter).prepareUnits)},
		{Name: "conditional-update", Title: "MySQL conditional UPDATE", Sound: true, DieAt: StepWritten,
			Flaw: "one commit after another on one row",
			New:  direct((*counter).sellConditional, (*counter).prepareRow)},
		{Name: "lock-per-coupon", Title: "one lock a coupon: Redis counter, MySQL row",
			Flaw:  "a coupon sells one at a time, at the pace of everything under the lock",
			Sound: true, DieAt: StepWritten,
			New: direct((*counter).sellBoth, (*counter).prepareRow, (*counter).prepareStock)},

		{Name: "lua-update", Title: "Lua, then one UPDATE a claim", Sound: true, DieAt: StepWritten,
			Flaw: "who dies between the two leaves books that differ; one commit after another on one row",
			New:  direct((*counter).takeAndUpdate, prepareLua...)},
		{Name: "sum-flush", Title: "Lua, a sum in each process, one UPDATE a flush",
			Flaw:  "who dies takes its sum along, and MySQL has too much for ever",
			Sound: true, DieAt: StepWritten,
			New: flushed((*flusher).writeSum)},
		{Name: "copy-stock", Title: "Lua, Redis' stock copied into the row",
			Flaw:  "a copy overwrites what others wrote to the row, and a late copy overwrites a newer one",
			Sound: true, DieAt: StepWritten,
			New: flushed((*flusher).copyLeft)},
		{Name: "red-packet", Title: "red packet list script, one by one", Sound: true, DieAt: StepWritten,
			Flaw:   "one script call a packet; the books are whatever reads the second list",
			Plenty: 400_000, New: direct((*counter).takePacket, (*counter).preparePackets, preload(redPacket))},

		{Name: "dibs-packages", Title: "Dibs, through its packages", Sound: true, DieAt: StepWritten,
			Flaw: "the books follow, some milliseconds behind",
			New:  newDibsPackages, Serve: serveDibs},
		{Name: "dibs-http", Title: "Dibs, over HTTP", Sound: true, DieAt: StepWritten,
			Flaw: "the books follow, some milliseconds behind", New: newDibsHTTP, Serve: serveDibs},
	}
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
