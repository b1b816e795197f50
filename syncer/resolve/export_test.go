package resolve

import (
	"time"

	"golang.org/x/time/rate"
)

func Eager(r *Relay) *Relay { return RelayAfter(r, 0) }

// RelayAfter makes r leave rows to their writers for that long.
func RelayAfter(r *Relay, after time.Duration) *Relay {
	r.after = after
	return r
}

// Hurry makes the next round retry the rows that r waits with.
func Hurry(r *Relay) {
	for id, t := range r.damaged {
		r.damaged[id] = tries{wait: t.wait}
	}
}

func RelayWithStep(r *Relay, step func(name string)) *Relay {
	r.steps.Observe(step)
	return r
}

func ResolverWithStep(r *Resolver, step func(name string)) *Resolver {
	r.steps.Observe(step)
	RelayWithStep(r.relay, step)
	return r
}

func ExpirerWithStep(e *Expirer, step func(name string)) *Expirer {
	e.steps.Observe(step)
	RelayWithStep(e.relay, step)
	return e
}

// ExpirerWithBatch makes e end that many
// claims in a transaction, without a pace.
func ExpirerWithBatch(e *Expirer, claims int) *Expirer {
	e.batchSize, e.pace = claims, rate.NewLimiter(rate.Inf, 0)
	return e
}

func FinalizerWithStep(f *Finalizer, step func(name string)) *Finalizer {
	f.steps.Observe(step)
	RelayWithStep(f.relay, step)
	return f
}

// FinalizerWithBatch makes f return packets
// of that many positions in a transaction.
func FinalizerWithBatch(f *Finalizer, places int) *Finalizer {
	f.batch = places
	return f
}

// FinalizerWithoutDelay makes f end a campaign as soon as it is drained.
func FinalizerWithoutDelay(f *Finalizer) *Finalizer {
	f.delay = 0
	return f
}

func ClosedEventID(campaignID string) string { return closedEventID(campaignID, nil) }

// ExpirerWithLots makes a pass of e read that many lots.
func ExpirerWithLots(e *Expirer, lots int) *Expirer {
	e.lots = lots
	return e
}
