package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Defaults of TrimmerConfig.
const (
	DefaultTrimCall   = 10_000  // entries a call: Redis is held for a few milliseconds
	DefaultTrimCalls  = 50      // calls a round: half a million entries a second are beyond any rush
	DefaultFarBehind  = 500_000 // entries; about 100 MB of Redis
	groupStart        = "0"     // a group that is not there reads from the beginning: it has missed nothing yet
	busyGroup         = "BUSYGROUP"
	noSuchKey         = "no such key"
	entryIDSeparator  = "-"
	entryIDNeverReads = "0-1" // successor of 0-0, where a new group stands
)

// TrimmerConfig is how a Trimmer works. Redis, Partitions, Groups and Logger are required.
type TrimmerConfig struct {
	Redis      redis.UniversalClient
	Partitions int
	Groups     []string // registered consumer groups: made if they are not there

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
	case c.Redis == nil:
		return sqlstore.Required("Redis")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.Partitions < 1 || c.Partitions > lua.PartitionsMax:
		return fmt.Errorf("%w: Partitions must be 1 to %d", sqlstore.ErrConfig, lua.PartitionsMax)
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
	for p := range t.cfg.Partitions {
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
	stream := lua.StreamKey(partition)
	groups, complete, err := t.groups(ctx, stream)
	if err != nil || !complete {
		return 0, err
	}
	var first entryID
	for i, g := range groups {
		needed, err := t.firstNeeded(ctx, stream, g)
		if err != nil {
			return 0, err
		}
		if i == 0 || needed.less(first) {
			first = needed
		}
	}
	trimmed, err := t.trimBelow(ctx, stream, first)
	if err != nil {
		return trimmed, err
	}
	return trimmed, t.measure(ctx, partition, groups)
}

// groups reads all groups of a stream: one that this process is not set up with may be that of a newer process, and holds back
// trimming like any other. A registered group that is not there is made, at the beginning, and complete is false: nothing is
// trimmed before it is seen to be there.
func (t *Trimmer) groups(ctx context.Context, stream string) (groups []redis.XInfoGroup, complete bool, err error) {
	there, err := t.cfg.Redis.XInfoGroups(ctx, stream).Result()
	if err != nil && !strings.Contains(err.Error(), noSuchKey) {
		return nil, false, err
	}
	complete = true
	for _, name := range t.cfg.Groups {
		if slices.ContainsFunc(there, func(g redis.XInfoGroup) bool { return g.Name == name }) {
			continue
		}
		complete = false
		err := t.cfg.Redis.XGroupCreateMkStream(ctx, stream, name, groupStart).Err()
		if err != nil && !redis.HasErrorPrefix(err, busyGroup) {
			return nil, false, err
		}
	}
	return there, complete, nil
}

// firstNeeded is the first entry that a group has not acknowledged: its lowest pending one, else the one after the last it
// was given. g may be old by now: then the answer is too low, which only keeps more.
func (t *Trimmer) firstNeeded(ctx context.Context, stream string, g redis.XInfoGroup) (entryID, error) {
	delivered, err := parseEntryID(g.LastDeliveredID)
	if err != nil || g.Pending == 0 {
		return delivered.next(), err
	}
	pending, err := t.cfg.Redis.XPending(ctx, stream, g.Name).Result()
	if err != nil {
		return entryID{}, err
	}
	if pending.Count == 0 { // acknowledged meanwhile, all that was delivered then
		return delivered.next(), nil
	}
	return parseEntryID(pending.Lower)
}

func (t *Trimmer) trimBelow(ctx context.Context, stream string, first entryID) (int64, error) {
	if first.String() == entryIDNeverReads {
		return 0, nil
	}
	var trimmed int64
	for range t.cfg.TrimCalls {
		n, err := t.cfg.Redis.XTrimMinIDApprox(ctx, stream, first.String(), t.cfg.TrimCall).Result()
		trimmed += n
		t.metrics.trimmed.Add(float64(n))
		if err != nil || n == 0 {
			return trimmed, err
		}
	}
	return trimmed, nil
}

// entryID is the id of a stream entry.
type entryID struct{ ms, seq uint64 }

func parseEntryID(text string) (entryID, error) {
	ms, seq, found := strings.Cut(text, entryIDSeparator)
	if !found {
		seq = "0" // the embedded Redis shortens 0-0
	}
	var id entryID
	var err error
	if id.ms, err = strconv.ParseUint(ms, 10, 64); err != nil {
		return entryID{}, fmt.Errorf("entry id %q: %w", text, err)
	}
	if id.seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
		return entryID{}, fmt.Errorf("entry id %q: %w", text, err)
	}
	return id, nil
}

// String is the form that Redis reads.
func (id entryID) String() string {
	return strconv.FormatUint(id.ms, 10) + entryIDSeparator + strconv.FormatUint(id.seq, 10)
}

func (id entryID) less(o entryID) bool { return id.ms < o.ms || id.ms == o.ms && id.seq < o.seq }

// next is the id right after this one.
func (id entryID) next() entryID {
	if id.seq++; id.seq == 0 {
		id.ms++
	}
	return id
}

// age is how long ago Redis made the id.
func (id entryID) age(now time.Time) time.Duration {
	return max(0, now.Sub(time.UnixMilli(int64(id.ms))))
}
