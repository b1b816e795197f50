package residency

import (
	"context"

	"dibs/lua"
)

// HydrateWithStep is one caller's Hydrate, with a function that is called between its steps, in the caller's goroutine.
func HydrateWithStep(ctx context.Context, h *Hydrator, id string, step func(name string)) (lua.Meta, error) {
	h.steps.Observe(step)
	defer h.steps.Observe(nil)
	return h.hydrate(ctx, id)
}

// EvictWithStep is Evict with a function that is called between its steps.
func EvictWithStep(ctx context.Context, e *Evictor, step func(name string)) (int, error) {
	e.steps.Observe(step)
	defer e.steps.Observe(nil)
	return e.Evict(ctx)
}

// LoadWithStep is one caller's Hydrate, or with force its Rebuild, with a function that is called between its steps.
func LoadWithStep(ctx context.Context, h *Hydrator, id string, force bool, step func(name string)) error {
	if !force {
		_, err := HydrateWithStep(ctx, h, id, step)
		return err
	}
	h.steps.Observe(step)
	defer h.steps.Observe(nil)
	_, err := h.Rebuild(ctx, id, true)
	return err
}

// LookAt has a round of Evict look at so many campaigns.
func (e *Evictor) LookAt(n int) { e.looks = n }
