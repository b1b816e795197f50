package resolve

import (
	"context"
	"maps"

	"dibs/models"
)

// RelayWithStep calls step between the steps of r from now on.
func RelayWithStep(r *Relay, step func(name string)) *Relay {
	return &Relay{cfg: r.cfg, metrics: r.metrics, step: step}
}

// ResolverWithStep is r with a function that is called between its steps and those of its relay.
func ResolverWithStep(r *Resolver, step func(name string)) *Resolver {
	return &Resolver{db: r.db, relay: RelayWithStep(r.relay, step), log: r.log, step: step}
}

// ExpirerWithStep is e with a function that is called between its steps and those of its relay.
func ExpirerWithStep(e *Expirer, step func(name string)) *Expirer {
	cfg := e.cfg
	cfg.Relay = RelayWithStep(cfg.Relay, step)
	return &Expirer{cfg: cfg, expired: e.expired, cursors: make(map[string]*expiryCursor), step: step}
}

// CloserWithStep is c with a function that is called between its steps and those of its relay.
func FinalizerWithStep(c *Finalizer, step func(name string)) *Finalizer {
	cfg := c.cfg
	cfg.Relay = RelayWithStep(cfg.Relay, step)
	stepping := &Finalizer{cfg: cfg, returned: c.returned, cursors: maps.Clone(c.cursors), resting: maps.Clone(c.resting), step: step}
	stepping.settled = stepping.isSettled
	return stepping
}

// RestlessCloser is c, but it returns packets as soon as it sees a campaign settled.
func FinalizerWithoutDelay(c *Finalizer) *Finalizer {
	c.cfg.ReturnDelay = 0
	return c
}

// HastyCloser is c, but it does not wait for claims that have no row yet.
func HastyFinalizer(c *Finalizer) *Finalizer {
	hasty := FinalizerWithStep(c, func(string) {})
	hasty.settled = func(context.Context, *models.Campaign) (bool, error) { return true, nil }
	return hasty
}

// ClosedEventID is the id of a campaign's campaign.closed.
var ClosedEventID = closedEventID
