package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"dibs/lua"
	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	trimCall  = 10_000  // entries of a call, which blocks Redis for a few milliseconds
	trimCalls = 50      // calls of a round: half a million entries a second is beyond any rush
	farBehind = 500_000 // entries, about 100 MB of Redis: a warning from here on
)

// TrimmerConfig configures a Trimmer. All but Registerer is required.
type TrimmerConfig struct {
	Streams  *lua.Scripts
	Registry *Registry
	// Applied returns the last entry of a stream
	// that MySQL has applied; zero is none.
	Applied   func(ctx context.Context, partition int) (lua.EntryID, error)
	Keep      time.Duration // younger entries stay, for a restored MySQL
	KeepBytes int64         // unless a stream is larger

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Trimmer removes old entries that MySQL has applied and every
// registered group has acknowledged. Any number may run.
type Trimmer struct {
	TrimmerConfig

	metrics *trimmerMetrics
	behind  map[string]bool  // streams and groups with a warning; used by Trim alone
	known   map[int][]string // groups with metrics, by partition; likewise

	call, farBehind int64 // the constants, except in tests
}

// NewTrimmer returns a trimmer for one goroutine.
func NewTrimmer(cfg TrimmerConfig) *Trimmer {
	return &Trimmer{
		TrimmerConfig: cfg, metrics: newTrimmerMetrics(cfg.Registerer),
		behind: make(map[string]bool), known: make(map[int][]string), call: trimCall, farBehind: farBehind,
	}
}

// Trim trims all streams once and returns how many entries it
// removed. A stream that fails does not stop the others.
// Without MySQL it only measures, as the registry is unknown.
// It also publishes the number of partitions in Redis.
func (t *Trimmer) Trim(ctx context.Context) (trimmed int64, err error) {
	// before the streams: else a removed group would seem new
	registered, err := t.Registry.Names(ctx)
	failed := []error{err, t.Streams.PublishPartitions(ctx)}
	found := make(map[string]int) // unregistered groups, and a partition of each
	for p := range t.Streams.Partitions() {
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
		t.Logger.InfoContext(ctx, "consumer groups were found in the claim streams and are registered:"+
			" nothing is trimmed that they have not read", slog.Any("groups", slices.Sorted(maps.Keys(found))))
		for name, p := range found {
			failed = append(failed, t.Registry.adopt(ctx, p, name))
		}
	}
	return trimmed, errors.Join(failed...)
}

// trimStream trims a stream and returns its groups. If a registered
// group is missing, it creates the group and trims nothing this time.
// An unregistered group counts like any other.
func (t *Trimmer) trimStream(
	ctx context.Context, partition int, registered []string,
) (trimmed int64, groups []lua.Group, err error) {
	applied := lua.EntryID{}
	if registered != nil { // MySQL answers
		applied, err = t.Applied(ctx, partition)
	}
	if err == nil {
		groups, err = t.Streams.Groups(ctx, partition)
	}
	if err != nil {
		return 0, nil, err
	}
	complete := registered != nil
	for _, name := range registered {
		if slices.ContainsFunc(groups, func(g lua.Group) bool { return g.Name == name }) {
			continue
		}
		complete = false
		if err := t.Registry.create(ctx, partition, name); err != nil {
			return 0, groups, err
		}
	}
	stream, err := t.Streams.Stream(ctx, partition)
	if err == nil && complete && applied != (lua.EntryID{}) {
		var first lua.EntryID
		first, err = t.firstKept(ctx, partition, &stream, groups, applied)
		if err == nil {
			trimmed, err = t.trimBelow(ctx, partition, first, applied)
		}
	}
	if err != nil {
		return trimmed, groups, err
	}
	return trimmed, groups, t.measure(ctx, partition, groups)
}

// firstKept returns the first entry of a stream that stays. The last
// applied one stays, as readers detect a loss by it, and all that a
// group needs. Entries younger than Keep stay unless the stream is too
// large. Ages are differences of ids, so a wrong clock is harmless.
func (t *Trimmer) firstKept(
	ctx context.Context, partition int, stream *lua.Stream, groups []lua.Group, applied lua.EntryID,
) (lua.EntryID, error) {
	young := applied
	young.Ms -= min(young.Ms, uint64(t.Keep.Milliseconds()))
	bytes, err := t.Streams.Bytes(ctx, partition)
	if err != nil {
		return young, err
	}
	if bytes > t.KeepBytes { // as if entries were evenly spaced: later rounds correct it
		span := float64(stream.Tip.Ms - stream.First.Ms)
		excess := 1 - float64(t.KeepBytes)/float64(bytes)
		large := lua.EntryID{Ms: stream.First.Ms + uint64(span*excess) + 1}
		if young.Less(large) {
			young = large
		}
	}
	first := applied
	if young.Less(first) {
		first = young
	}
	for i := range groups {
		needed := groups[i].First()
		if groups[i].Name != models.GroupSyncer && needed.Less(first) {
			first = needed
		}
	}
	return first, nil
}

func (t *Trimmer) trimBelow(ctx context.Context, partition int, first, applied lua.EntryID) (trimmed int64, err error) {
	if first == (lua.EntryID{}) || first == (lua.EntryID{}).Next() { // a group has read nothing
		return 0, nil
	}
	for range trimCalls {
		n, err := t.Streams.TrimBelow(ctx, partition, first, applied, t.call)
		trimmed += n
		t.metrics.trimmed.Add(float64(n))
		if err != nil || n == 0 {
			return trimmed, err
		}
	}
	return trimmed, nil
}
