package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"dibs/lua"
	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	trimCall  = 10_000  // entries a call: Redis is held for a few milliseconds
	trimCalls = 50      // calls a round: half a million entries a second are beyond any rush
	farBehind = 500_000 // entries, about 100 MB of Redis; a group that is further behind is warned of
)

// Trimmer removes from the claim streams what every registered group has acknowledged. Any number may run at once.
type Trimmer struct {
	streams  *lua.Scripts
	registry *Registry
	log      *slog.Logger
	metrics  *trimmerMetrics
	behind   map[string]bool  // stream and group that were warned of; Trim's own
	known    map[int][]string // groups with figures, by partition; Trim's own

	call, farBehind int64 // are the constants, but in tests
}

// NewTrimmer makes a trimmer, which is for one goroutine; reg may be nil.
func NewTrimmer(streams *lua.Scripts, registry *Registry, log *slog.Logger, reg prometheus.Registerer) *Trimmer {
	return &Trimmer{
		streams: streams, registry: registry, log: log, metrics: newTrimmerMetrics(reg),
		behind: make(map[string]bool), known: make(map[int][]string), call: trimCall, farBehind: farBehind,
	}
}

// Trim goes once over all streams and returns how many entries it removed. A stream that fails does not stop the others. While MySQL is
// away it only measures, and removes nothing: a group that Redis lost may be registered. Readers of the streams find in Redis how many
// there are.
func (t *Trimmer) Trim(ctx context.Context) (trimmed int64, err error) {
	registered, err := t.registry.Names(ctx) // before the streams are read: what is found there and not here is not one that was just removed
	failed := []error{err, t.streams.PublishPartitions(ctx)}
	found := make(map[string]int) // groups that are not registered, and the partition of one of their streams
	for p := range t.streams.Partitions() {
		n, groups, err := t.trimStream(ctx, p, registered)
		trimmed += n
		if err != nil {
			t.metrics.forget(p)
			failed = append(failed, fmt.Errorf("retention: trim %s: %w", lua.StreamKey(p), err))
		}
		for i := range groups {
			if name := groups[i].Name; !slices.Contains(registered, name) && len(name) <= models.GroupNameLength {
				found[name] = p
			}
		}
	}
	if registered != nil && len(found) > 0 {
		t.log.InfoContext(ctx, "consumer groups were found in the claim streams and are registered: nothing is trimmed that they have not read",
			slog.Any("groups", slices.Sorted(maps.Keys(found))))
		for name, p := range found {
			failed = append(failed, t.registry.adopt(ctx, p, name))
		}
	}
	return trimmed, errors.Join(failed...)
}

// trimStream returns the groups of a stream as well. A registered group that it lacks is created, and nothing is trimmed in this round. A
// group that is not registered yet holds back trimming like any other.
func (t *Trimmer) trimStream(ctx context.Context, partition int, registered []string) (trimmed int64, groups []lua.Group, err error) {
	groups, err = t.streams.Groups(ctx, partition)
	if err != nil {
		return 0, nil, err
	}
	complete := registered != nil
	for _, name := range registered {
		if slices.ContainsFunc(groups, func(g lua.Group) bool { return g.Name == name }) {
			continue
		}
		complete = false
		if err := t.registry.create(ctx, partition, name); err != nil {
			return 0, groups, err
		}
	}
	if complete {
		first := groups[0].First()
		for i := range groups {
			if needed := groups[i].First(); needed.Less(first) {
				first = needed
			}
		}
		trimmed, err = t.trimBelow(ctx, partition, first)
		if err != nil {
			return trimmed, groups, err
		}
	}
	return trimmed, groups, t.measure(ctx, partition, groups)
}

func (t *Trimmer) trimBelow(ctx context.Context, partition int, first lua.EntryID) (trimmed int64, err error) {
	if first == (lua.EntryID{}).Next() { // a group that has read nothing
		return 0, nil
	}
	for range trimCalls {
		n, err := t.streams.TrimBelow(ctx, partition, first, t.call)
		trimmed += n
		t.metrics.trimmed.Add(float64(n))
		if err != nil || n == 0 {
			return trimmed, err
		}
	}
	return trimmed, nil
}
