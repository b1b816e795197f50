package lots

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"dibs/lua"
	"dibs/models"
)

const (
	groupMax  = 128 // lots of a group
	groupsMax = 2   // at once in a process; later requests form the next one
)

// groups batches requests for lots. Those without claims share
// statements and round trips.
type groups struct {
	load func(ctx context.Context, ids []string) map[string]*lot

	mu      sync.Mutex
	waiting []*wait
	running int
}

type wait struct {
	id   string
	done chan struct{}
	lot  *lot // nil: it is loaded by itself
}

// add loads a lot with others. If it returns nil, the lot must be loaded by
// itself. Errors: models.ErrNotFound, settings.ErrPartitions, ErrAway.
func (g *groups) add(ctx context.Context, id string) (*lot, error) {
	one := &wait{id: id, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, one)
	g.start()
	g.mu.Unlock()
	select {
	case <-one.done:
		return one.lot, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %s: %w", ErrAway, id, context.Cause(ctx))
	}
}

// start starts a group of waiting requests. The caller holds mu.
func (g *groups) start() {
	if len(g.waiting) == 0 || g.running == groupsMax {
		return
	}
	n := min(len(g.waiting), groupMax)
	group := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	g.running++
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), tipWait)
		defer cancel()
		ids := make([]string, n)
		for i, one := range group {
			ids[i] = one.id
		}
		loaded := g.load(ctx, ids)
		for _, one := range group {
			one.lot = loaded[one.id]
			close(one.done)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running--
		g.start()
	}()
}

// loadGroup loads the lots without claims, and returns those that are then
// live. The rest is left to loadOne, which reports the reason of a failure.
func (l *Loader) loadGroup(ctx context.Context, ids []string) map[string]*lot {
	live := make(map[string]*lot)
	token := rand.Text()
	all, err := l.fence(ctx, ids, lua.FenceAway, token)
	if err != nil {
		return live
	}
	var left []*lot
	for _, o := range all {
		switch {
		case o.isDone:
			live[o.row.ID] = o
		case o.err == nil:
			left = append(left, o)
		}
	}
	l.loadCold(ctx, left, token, live)
	var others []string
	for _, o := range left {
		if live[o.row.ID] == nil {
			others = append(others, o.row.ID)
		}
	}
	l.scripts.Fence(ctx, token, lua.FenceLeave, others)
	return live
}

func (l *Loader) loadCold(ctx context.Context, lots []*lot, token string, live map[string]*lot) {
	lots = slices.DeleteFunc(slices.Clone(lots), func(o *lot) bool { return !o.isCold() })
	if len(lots) == 0 {
		return
	}
	applied := l.appliedNow(ctx, lots)
	lots = slices.DeleteFunc(lots, func(o *lot) bool { return !slices.Contains(applied, o.row.Partition) })
	if len(lots) == 0 {
		return
	}
	numbered, err := l.number(ctx, lots, token)
	if err != nil {
		return
	}
	numbered = slices.DeleteFunc(numbered, func(o *lot) bool { return !o.isCold() })
	loads := make([]lua.Load, len(numbered))
	for i, o := range numbered {
		loads[i] = *o.loadOf(&counted{}, token)
	}
	var loaded []*lot
	for i, err := range l.scripts.LoadAll(ctx, loads) {
		if err == nil {
			live[numbered[i].row.ID] = numbered[i]
			loaded = append(loaded, numbered[i])
		}
	}
	if len(loaded) > 0 {
		l.steps.At("loaded")
		l.follow(ctx, loaded)
	}
}

// appliedNow returns the applied partitions of lots, after a short wait.
func (l *Loader) appliedNow(ctx context.Context, lots []*lot) []int {
	var partitions []int
	for _, o := range lots {
		partitions = append(partitions, o.row.Partition)
	}
	slices.Sort(partitions)
	ctx, cancel := context.WithTimeout(ctx, groupWait)
	defer cancel()
	applied, err := l.applied.Await(ctx, slices.Compact(partitions))
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return applied
}

// isCold reports whether there is nothing
// to stage and no process can know more.
func (o *lot) isCold() bool {
	return o.row.IsBlank && o.row.Kind != models.KindPacket && !models.IsShardID(o.row.ID) && !o.mayBeKnownBetter()
}
