package residency

import (
	"context"

	"dibs/lua"
)

// HydrateWithStep is Hydrate without the sharing, with a function that is called between its steps.
func HydrateWithStep(ctx context.Context, h *Hydrator, id string, step func(name string)) (lua.Meta, error) {
	bring := h.Applier
	bring.PushStep = func() { step("pushed") }
	stepping := &Hydrator{Applier: bring, cfg: h.cfg, generations: h.generations, metrics: h.metrics, step: step}
	return stepping.hydrate(ctx, id)
}

// EvictWithStep is Evict with a function that is called between its steps.
func EvictWithStep(ctx context.Context, e *Evictor, step func(name string)) (int, error) {
	stepping := &Evictor{cfg: e.cfg, evictions: e.evictions, step: step}
	return stepping.Evict(ctx)
}
