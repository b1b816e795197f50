package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"dibs/lua"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	trimCall  = 10_000  // entries a call: Redis is held for a few milliseconds
	trimCalls = 50      // calls a round: half a million entries a second are beyond any rush
	farBehind = 500_000 // entries, about 100 MB of Redis; a group that is further behind is warned of
)

// Streams is the part of lua.Scripts that a Trimmer uses.
type Streams interface {
	Partitions() int
	Stream(ctx context.Context, partition int) (lua.Stream, error)
	Groups(ctx context.Context, partition int) ([]lua.Group, error)
	NewGroup(ctx context.Context, partition int, group string) error
	TrimBelow(ctx context.Context, partition int, id lua.EntryID, most int64) (int64, error)
	Entries(ctx context.Context, partition int, from lua.EntryID, most int) ([]lua.Entry, error)
	Now(ctx context.Context) (time.Time, error)
}

var _ Streams = (*lua.Scripts)(nil)

// Trimmer takes from the claim streams what every group has acknowledged: every group that a stream has, and every registered one.
// Any number may run at once, whatever groups each is set up with.
type Trimmer struct {
	streams    Streams
	registered []string // groups that are made if they are not there
	log        *slog.Logger
	metrics    *trimmerMetrics
	behind     map[string]bool  // stream and group that were warned of; Trim's own
	known      map[int][]string // groups with figures, by partition; Trim's own

	call, farBehind int64 // are the constants, but in tests
}

// NewTrimmer makes a trimmer, which is for one goroutine; reg may be nil.
func NewTrimmer(streams Streams, groups []string, log *slog.Logger, reg prometheus.Registerer) *Trimmer {
	return &Trimmer{
		streams: streams, registered: groups, log: log, metrics: newTrimmerMetrics(reg),
		behind: make(map[string]bool), known: make(map[int][]string), call: trimCall, farBehind: farBehind,
	}
}

// Trim goes once over all streams and returns how many entries went. A stream that fails does not keep the others.
func (t *Trimmer) Trim(ctx context.Context) (trimmed int64, err error) {
	var failed []error
	for p := range t.streams.Partitions() {
		n, err := t.trimStream(ctx, p)
		trimmed += n
		if err != nil {
			t.metrics.forget(p)
			failed = append(failed, fmt.Errorf("retention: trim %s: %w", lua.StreamKey(p), err))
		}
	}
	return trimmed, errors.Join(failed...)
}

func (t *Trimmer) trimStream(ctx context.Context, partition int) (int64, error) {
	groups, complete, err := t.groups(ctx, partition)
	if err != nil || !complete {
		return 0, err
	}
	first := groups[0].First()
	for i := range groups {
		if needed := groups[i].First(); needed.Less(first) {
			first = needed
		}
	}
	trimmed, err := t.trimBelow(ctx, partition, first)
	if err != nil {
		return trimmed, err
	}
	return trimmed, t.measure(ctx, partition, groups)
}

// groups reads all groups of a stream: one that this process is not set up with may be that of a newer process, and holds back
// trimming like any other. A registered group that is not there is made, at the beginning, and complete is false: nothing is
// trimmed before it is seen to be there.
func (t *Trimmer) groups(ctx context.Context, partition int) (groups []lua.Group, complete bool, err error) {
	all, err := t.streams.Groups(ctx, partition)
	if err != nil {
		return nil, false, err
	}
	complete = true
	for _, name := range t.registered {
		if slices.ContainsFunc(all, func(g lua.Group) bool { return g.Name == name }) {
			continue
		}
		complete = false
		if err := t.streams.NewGroup(ctx, partition, name); err != nil {
			return nil, false, err
		}
	}
	return all, complete, nil
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
