package writer

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/tracing"
	"dibs/models/event"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// Defaults and bounds of Config.
const (
	// DefaultFlushSize: entries: the cost per row is flat from about 1,000 on.
	DefaultFlushSize     = 2000
	DefaultFlushInterval = 50 * time.Millisecond // DBAs are promised a second
	FlushSizeMax         = entriesMax
)

const (
	// entriesMax bounds a flush, and the entries that wait for the next
	// one. A flush locks as many rows for tens of milliseconds.
	entriesMax = 10_000

	// A flush writes a row of stock_flushes per lot, and
	// the next one waits this long for each. So there
	// are at most 200 rows a second, or two flushes.
	intervalPerLot = 5 * time.Millisecond
	intervalMax    = 500 * time.Millisecond
	// loadsFollow is how long after a load
	// others probably wait for the stream.
	loadsFollow = 100 * time.Millisecond
	// awaitedApart is the least time between
	// two flushes that answers wait for.
	awaitedApart = 5 * time.Millisecond
	// retryLocked is the pause between two tries for a locked lot.
	retryLocked = time.Second
	// checkOffsets is how often offsets of
	// idle streams are compared with MySQL's.
	checkOffsets = time.Second
	// findWaiting is how often waiting sums of dead processes are searched.
	findWaiting = 10 * time.Second
	// pauseRefused is the wait after an error
	// that neither retry nor parking resolves.
	pauseRefused = time.Second
)

// Config configures a Writer. DB and Logger are required.
type Config struct {
	DB *gorm.DB

	Partitions    int           // claim streams; 0 is 1
	FlushSize     int           // entries that start a flush before its interval ends
	FlushInterval time.Duration // wait of a claim; up to 500 ms if flushes have many campaigns

	// Applied gets the new offsets after each commit,
	// and a partition's offset when its turn starts. It
	// is called from any goroutine, and must not block.
	Applied func(offsets map[int]event.Offset)

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
	Tracer     *tracing.Tracer       // nil: no traces
}

// WithDefaults returns a copy with defaults for zero fields.
func (c Config) WithDefaults() Config {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.FlushSize = cmp.Or(c.FlushSize, DefaultFlushSize)
	c.FlushInterval = cmp.Or(c.FlushInterval, DefaultFlushInterval)
	if c.Applied == nil {
		c.Applied = func(map[int]event.Offset) {}
	}
	return c
}

// Validate returns sqlstore.ErrConfig, wrapped
// with the name of the first invalid field.
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
