package resolve

import (
	"time"

	"golang.org/x/time/rate"
)

// Eager has r leave no row to the process that wrote it.
func Eager(r *Relay) *Relay { return RelayAfter(r, 0) }

// RelayAfter has r leave rows to the process that wrote them for that long.
func RelayAfter(r *Relay, after time.Duration) *Relay {
	r.after = after
	return r
}

// Hurry has the rows that r waits with tried again in the next round.
func Hurry(r *Relay) {
	for id, t := range r.damaged {
		r.damaged[id] = tries{wait: t.wait}
	}
}

// RelayWithStep has step called at each step of r.
func RelayWithStep(r *Relay, step func(name string)) *Relay {
	r.steps.Observe(step)
	return r
}

// ResolverWithStep has step called at each step of r and of its relay.
func ResolverWithStep(r *Resolver, step func(name string)) *Resolver {
	r.steps.Observe(step)
	RelayWithStep(r.relay, step)
	return r
}

// ExpirerWithStep has step called at each step of e and of its relay.
func ExpirerWithStep(e *Expirer, step func(name string)) *Expirer {
	e.steps.Observe(step)
	RelayWithStep(e.relay, step)
	return e
}

// ExpirerWithBatch has e end so many claims in a transaction, as fast as it
// can.
func ExpirerWithBatch(e *Expirer, claims int) *Expirer {
	e.batchSize, e.pace = claims, rate.NewLimiter(rate.Inf, 0)
	return e
}

// FinalizerWithStep has step called at each step of f and of its relay.
func FinalizerWithStep(f *Finalizer, step func(name string)) *Finalizer {
	f.steps.Observe(step)
	RelayWithStep(f.relay, step)
	return f
}

// FinalizerWithBatch has f return the packets of so many places in a
// transaction.
func FinalizerWithBatch(f *Finalizer, places int) *Finalizer {
	f.batch = places
	return f
}

// FinalizerWithoutDelay has f end a campaign as soon as it sees it drained.
func FinalizerWithoutDelay(f *Finalizer) *Finalizer {
	f.delay = 0
	return f
}

// ClosedEventID is the id of a campaign's campaign.closed.
var ClosedEventID = closedEventID
