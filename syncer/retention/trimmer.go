package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of TrimmerConfig.
const (
	DefaultTrimCall  = 10_000  // entries a call: Redis is held for a few milliseconds
	DefaultTrimCalls = 50      // calls a round: half a million entries a second are beyond any rush
	DefaultFarBehind = 500_000 // entries; about 100 MB of Redis
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

// TrimmerConfig is how a Trimmer works. Scripts, Groups and Logger are required.
type TrimmerConfig struct {
	Scripts Streams
	Groups  []string // registered consumer groups: made if they are not there

	TrimCall  int64 // entries that one call to Redis may trim
	TrimCalls int   // calls in one round of a stream
	FarBehind int64 // entries; a group that is further behind is warned of

	Logger     *slog.Logger
	Clock      clockwork.Clock
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c TrimmerConfig) WithDefaults() TrimmerConfig {
	sqlstore.OrDefault(&c.TrimCall, DefaultTrimCall)
	sqlstore.OrDefault(&c.TrimCalls, DefaultTrimCalls)
	sqlstore.OrDefault(&c.FarBehind, DefaultFarBehind)
	if c.Clock == nil {
		c.Clock = clockwork.NewRealClock()
	}
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c TrimmerConfig) Validate() error {
	switch {
	case c.Scripts == nil:
		return sqlstore.Required("Scripts")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case len(c.Groups) == 0:
		return fmt.Errorf("%w: Groups must name the consumer groups whose entries are kept for them", sqlstore.ErrConfig)
	case c.TrimCall < 1 || c.TrimCalls < 1 || c.FarBehind < 1:
		return fmt.Errorf("%w: TrimCall, TrimCalls and FarBehind must be positive", sqlstore.ErrConfig)
	}
	if slices.Contains(c.Groups, "") {
		return fmt.Errorf("%w: Groups holds an empty name", sqlstore.ErrConfig)
	}
	return nil
}

// Trimmer takes from the claim streams what every group has acknowledged: every group that a stream has, and every registered one.
// Any number may run at once, whatever groups each is set up with.
type Trimmer struct {
	cfg     TrimmerConfig
	metrics *trimmerMetrics
	behind  map[string]bool  // stream and group that were warned of; Trim's own
	known   map[int][]string // groups with figures, by partition; Trim's own
}

// NewTrimmer checks cfg and makes a trimmer. It is for one goroutine.
func NewTrimmer(cfg TrimmerConfig) (*Trimmer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Trimmer{cfg: cfg, metrics: newTrimmerMetrics(cfg.Registerer), behind: make(map[string]bool), known: make(map[int][]string)}, nil
}

// Trim goes once over all streams and returns how many entries went. A stream that fails does not keep the others.
func (t *Trimmer) Trim(ctx context.Context) (trimmed int64, err error) {
	var failed []error
	for p := range t.cfg.Scripts.Partitions() {
		n, err := t.trimStream(ctx, p)
		trimmed += n
		if err != nil {
			t.metrics.forget(p)
			failed = append(failed, fmt.Errorf("syncer: trim %s: %w", lua.StreamKey(p), err))
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
	all, err := t.cfg.Scripts.Groups(ctx, partition)
	if err != nil {
		return nil, false, err
	}
	complete = true
	for _, name := range t.cfg.Groups {
		if slices.ContainsFunc(all, func(g lua.Group) bool { return g.Name == name }) {
			continue
		}
		complete = false
		if err := t.cfg.Scripts.NewGroup(ctx, partition, name); err != nil {
			return nil, false, err
		}
	}
	return all, complete, nil
}

func (t *Trimmer) trimBelow(ctx context.Context, partition int, first lua.EntryID) (trimmed int64, err error) {
	if first == (lua.EntryID{}).Next() { // a group that has read nothing
		return 0, nil
	}
	for range t.cfg.TrimCalls {
		n, err := t.cfg.Scripts.TrimBelow(ctx, partition, first, t.cfg.TrimCall)
		trimmed += n
		t.metrics.trimmed.Add(float64(n))
		if err != nil || n == 0 {
			return trimmed, err
		}
	}
	return trimmed, nil
}
