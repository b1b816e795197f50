package residency

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"dibs/lua"
	"dibs/syncer/recovery"
)

const (
	maxInitialLoads = 128                   // campaigns of a group
	maxGroups       = 4                     // groups under way at once in a process
	slowAfter       = 50 * time.Millisecond // a group that takes longer no longer holds up the next one
	firstsTimeout   = 4 * time.Second       // of a group
)

// initialLoads groups loads of campaigns that were never loaded: those that were asked for while the group before was loaded are the next
// group. What is not as the others leaves the group, and is loaded by itself.
type initialLoads struct {
	h *Hydrator

	mu      sync.Mutex
	waiting []*first
	running int // groups
	prompt  int // groups of these that have not used up their patience
}

// first is a campaign that may be loaded for the first time.
type first struct {
	id   string
	done chan struct{} // is closed when the group is done with it
	meta *lua.Meta     // nil: load it by itself
	seen *lot          // what was observed of one that is to be loaded by itself, if it is of use still
}

// load loads a campaign with others, if it was never loaded. Else, and after any failure, it returns no meta.
func (f *initialLoads) load(ctx context.Context, id string) (*lua.Meta, *lot) {
	one := &first{id: id, done: make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, one)
	f.start()
	f.mu.Unlock()
	select {
	case <-one.done:
		return one.meta, one.seen
	case <-ctx.Done():
		return nil, nil
	}
}

// start starts a group of those that wait, unless one was started just now. The caller holds mu.
func (f *initialLoads) start() {
	if len(f.waiting) == 0 || f.prompt > 0 || f.running == maxGroups {
		return
	}
	n := min(len(f.waiting), maxInitialLoads)
	group := slices.Clone(f.waiting[:n])
	f.waiting = slices.Delete(f.waiting, 0, n)
	f.running++
	f.prompt++
	prompt := true
	late := func() { // once; the caller holds mu
		if prompt {
			prompt = false
			f.prompt--
		}
		f.start()
	}
	patience := time.AfterFunc(slowAfter, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		late()
	})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), firstsTimeout)
		defer cancel()
		f.h.loadFirsts(ctx, group)
		for _, one := range group {
			close(one.done)
		}
		patience.Stop()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running--
		late()
	}()
}

// loadFirsts observes the campaigns of a group, loads the initial ones together, and sets meta of those that Redis holds then.
func (h *Hydrator) loadFirsts(ctx context.Context, group []*first) {
	byID := make(map[string]*first, len(group))
	ids := make([]string, len(group))
	for i, one := range group {
		ids[i] = one.id
		byID[one.id] = one
	}
	all, err := h.observeAll(ctx, ids...)
	var held, initial []*lot
	for _, o := range all {
		switch step := recovery.PlanLot(&o.Lot, recovery.Auto); {
		case o.row.IsSharded(), step.Action == recovery.None: // shards are loaded each by itself
			held = append(held, o)
		case o.isInitial(step):
			initial = append(initial, o)
		default:
			byID[o.row.ID].seen = o
		}
	}
	if err == nil && len(initial) > 0 {
		initial, _, err = h.load(ctx, recovery.Step{Action: recovery.Load, Epoch: firstNumber}, initial...)
		held = append(held, initial...)
		if len(initial) > 0 {
			h.steps.At("opened")
		}
	}
	for _, o := range held {
		if meta, err := h.scripts.MetaOf(&o.row.Campaign); err == nil {
			byID[o.row.ID].meta = &meta
		}
	}
	if err != nil {
		h.log.LogAttrs(ctx, slog.LevelWarn, "campaigns could not be loaded together: each is loaded by itself", slog.Any("error", err))
	}
}
