package syncer

import (
	"context"
	"maps"

	"gorm.io/gorm"

	"dibs/lua"
	"dibs/models"
)

// NewWriterWithStep is NewWriter with a function that is called between the steps of a flush.
func NewWriterWithStep(cfg WriterConfig, step func(name string)) (*Writer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w, err := newWriter(cfg)
	if err != nil {
		return nil, err
	}
	w.step = step
	w.start()
	return w, nil
}

// HydrateWithStep is Hydrate without the sharing, with a function that is called between its steps.
func HydrateWithStep(ctx context.Context, h *Hydrator, id string, step func(name string)) (lua.Meta, error) {
	bring := h.bringer
	bring.pushStep = func() { step("pushed") }
	stepping := &Hydrator{bringer: bring, cfg: h.cfg, marks: h.marks, metrics: h.metrics, step: step}
	return stepping.hydrate(ctx, id)
}

// EvictWithStep is Evict with a function that is called between its steps.
func EvictWithStep(ctx context.Context, e *Evictor, step func(name string)) (int, error) {
	stepping := &Evictor{cfg: e.cfg, evictions: e.evictions, step: step}
	return stepping.Evict(ctx)
}

// Pending is the number of events in the adder.
func (w *Writer) Pending() int { return int(w.adder.pending.Load()) }

// Held is the number of events that the writer has and has not answered for.
func (w *Writer) Held() int {
	free := 0
	for w.room.TryAcquire(1) {
		free++
	}
	w.room.Release(int64(free))
	return w.cfg.PendingMax - free
}

// RelayWithStep calls step between the steps of r from now on.
func RelayWithStep(r *Relay, step func(name string)) *Relay {
	return &Relay{cfg: r.cfg, metrics: r.metrics, step: step}
}

// OutboxRow and PutOutbox are what writes rows.
var (
	OutboxRow = outboxRow
	PutOutbox = putOutbox
)

// FindClaims is the query of ClaimsOf.
func FindClaims(db *gorm.DB, q models.ClaimsQuery) *gorm.DB {
	return findClaims(db, q).Find(&[]claimLine{})
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
func CloserWithStep(c *Closer, step func(name string)) *Closer {
	cfg := c.cfg
	cfg.Relay = RelayWithStep(cfg.Relay, step)
	stepping := &Closer{cfg: cfg, returned: c.returned, cursors: maps.Clone(c.cursors), resting: maps.Clone(c.resting), step: step}
	stepping.settled = stepping.isSettled
	return stepping
}

// RestlessCloser is c, but it returns packets as soon as it sees a campaign settled.
func RestlessCloser(c *Closer) *Closer {
	c.cfg.RestFor = 0
	return c
}

// HastyCloser is c, but it does not wait for claims that have no row yet.
func HastyCloser(c *Closer) *Closer {
	hasty := CloserWithStep(c, func(string) {})
	hasty.settled = func(context.Context, *models.Campaign) (bool, error) { return true, nil }
	return hasty
}

// ClosedEventID is the id of a campaign's campaign.closed.
var ClosedEventID = closedEventID
