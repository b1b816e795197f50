package writer

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/tracing"
	"dibs/models"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// Defaults and bounds of Config.
const (
	DefaultFlushSize     = 2000                  // entries: InnoDB's cost a row stops falling at about 1,000
	DefaultFlushInterval = 50 * time.Millisecond // DBAs are promised a second
	FlushSizeMax         = entriesMax
)

const (
	// entriesMax bounds a flush, and what waits for the next one. The row locks of a transaction are held for tens of
	// milliseconds by so many.
	entriesMax   = 10_000
	flushTimeout = 30 * time.Second // of one attempt at a transaction

	// A flush writes a row of stock_flushes for each campaign in it, or shard. The next one waits so long for each of them,
	// so that at most 200 rows a second are written, or two flushes a second.
	intervalPerLot = 5 * time.Millisecond
	intervalMax    = 500 * time.Millisecond
	// loadsFollow is how long after a load others are likely to wait for what is in the stream then.
	loadsFollow = 100 * time.Millisecond
	// awaitedApart is how long after the begin of a flush the next one begins while answers wait for it.
	awaitedApart = 5 * time.Millisecond
	// retryLocked is how often a locked lot is asked for.
	retryLocked = time.Second
	// checkOffsets is how often the offsets of idle streams are compared with MySQL's.
	checkOffsets = time.Second
	// findWaiting is how often sums are looked for that a process left that died.
	findWaiting = 10 * time.Second
	// pauseRefused is the wait after an error that no retry and no parking cures.
	pauseRefused = time.Second
)

// Config configures a Writer. DB and Logger are required.
type Config struct {
	DB *gorm.DB

	Partitions    int           // claim streams; 0 is 1
	FlushSize     int           // entries that are flushed at once, though their time has not come
	FlushInterval time.Duration // wait of a claim for others; up to 500 ms once flushes have claims of many campaigns

	// Applied is told where offsets are: those of a flush when it is committed, and that of a partition when its turn begins. Any goroutine
	// may call it. It must not wait. nil: nobody is told.
	Applied func(offsets map[int]models.Offset)

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
	Tracer     *tracing.Tracer       // nil: no traces
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c Config) WithDefaults() Config {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.FlushSize = cmp.Or(c.FlushSize, DefaultFlushSize)
	c.FlushInterval = cmp.Or(c.FlushInterval, DefaultFlushInterval)
	if c.Applied == nil {
		c.Applied = func(map[int]models.Offset) {}
	}
	return c
}

// Validate returns nil, or sqlstore.ErrConfig wrapped with the name of the field.
func (c Config) Validate() error {
	switch {
	case c.DB == nil:
		return fmt.Errorf("writer: %w: DB is required", sqlstore.ErrConfig)
	case c.Logger == nil:
		return fmt.Errorf("writer: %w: Logger is required", sqlstore.ErrConfig)
	case c.Partitions < 1:
		return fmt.Errorf("writer: %w: Partitions must be at least 1", sqlstore.ErrConfig)
	case c.FlushSize < 1 || c.FlushSize > FlushSizeMax:
		return fmt.Errorf("writer: %w: FlushSize must be 1 to %d", sqlstore.ErrConfig, FlushSizeMax)
	case c.FlushInterval < time.Millisecond || c.FlushInterval > time.Minute:
		return fmt.Errorf("writer: %w: FlushInterval must be 1ms to 1m", sqlstore.ErrConfig)
	}
	return nil
}

// tuning is what only tests change.
type tuning struct {
	partitions   int
	clock        clockwork.Clock
	flushTimeout time.Duration
}

func defaultTuning() tuning {
	return tuning{partitions: 1, clock: clockwork.NewRealClock(), flushTimeout: flushTimeout}
}

// of is the tuning for so many claim streams.
func (t tuning) of(partitions int) tuning {
	t.partitions = partitions
	return t
}
