package residency

import (
	"context"

	"dibs/lua"
	"dibs/syncer/recovery"
)

// HydrateWithStep is one caller's Hydrate, with a function that is called between its steps, in the caller's goroutine.
func HydrateWithStep(ctx context.Context, h *Hydrator, id string, step func(name string)) (lua.Meta, error) {
	h.steps.Observe(step)
	defer h.steps.Observe(nil)
	if metas := FirstsWithStep(ctx, h, []string{id}, step); metas[0] != nil {
		return *metas[0], nil
	}
	h.steps.Observe(step)
	return h.newRun(recovery.Auto).follow(ctx, id, nil, true)
}

// FirstsWithStep loads a group of campaigns, with a function that is called between its steps, in the caller's goroutine. It returns nil
// for each that is to be loaded by itself.
func FirstsWithStep(ctx context.Context, h *Hydrator, ids []string, step func(name string)) []*lua.Meta {
	h.steps.Observe(step)
	defer h.steps.Observe(nil)
	group, metas := make([]*first, len(ids)), make([]*lua.Meta, len(ids))
	for i, id := range ids {
		group[i] = &first{id: id}
	}
	h.loadFirsts(ctx, group)
	for i, one := range group {
		metas[i] = one.meta
	}
	return metas
}

// EvictWithStep is Evict with a function that is called between its steps.
func EvictWithStep(ctx context.Context, m *Maintainer, step func(name string)) (int, error) {
	m.h.steps.Observe(step)
	defer m.h.steps.Observe(nil)
	return m.Evict(ctx)
}

// EvictAtOnce is how many lots are sent to Redis together.
const EvictAtOnce = evictAtOnce

// LookAt has a round of Evict look at so many campaigns.
func (m *Maintainer) LookAt(n int) { m.page = n }

// Observe has a function called at each step of a hydrator from now on.
func Observe(h *Hydrator, step func(name string)) { h.steps.Observe(step) }
