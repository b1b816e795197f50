package writer

import (
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// Defaults of WriterConfig.
const (
	DefaultFlushSize     = 2000                  // rows: InnoDB's cost a row stops falling at about 1,000
	DefaultFlushInterval = 50 * time.Millisecond // DBAs are promised a second
	DefaultFlushTimeout  = 30 * time.Second      // one attempt at a transaction
	DefaultWriters       = 1                     // one hot campaign is one row, so a second flush mostly waits for the first
	FlushSizeMax         = 20_000                // rows: keeps the statement under a server's packet limit of 16 MB
	writersMax           = 16
	pendingFlushes       = 8 // of PendingMax's default, in flushes
)

// WriterConfig is how a Writer works. DB and Logger are required.
type Config struct {
	DB *gorm.DB

	FlushSize     int           // rows; most that one transaction holds
	FlushInterval time.Duration // most that a claim waits for others
	FlushTimeout  time.Duration // most that one attempt at a transaction may take
	Writers       int           // flushes at the same time
	PendingMax    int           // claims held in memory; Submit blocks above

	Logger     *slog.Logger
	Clock      clockwork.Clock
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c Config) WithDefaults() Config {
	sqlstore.OrDefault(&c.FlushSize, DefaultFlushSize)
	sqlstore.OrDefault(&c.FlushInterval, DefaultFlushInterval)
	sqlstore.OrDefault(&c.FlushTimeout, DefaultFlushTimeout)
	sqlstore.OrDefault(&c.Writers, DefaultWriters)
	sqlstore.OrDefault(&c.PendingMax, pendingFlushes*c.FlushSize)
	if c.Clock == nil {
		c.Clock = clockwork.NewRealClock()
	}
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c Config) Validate() error {
	switch {
	case c.DB == nil:
		return sqlstore.Required("DB")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.FlushSize < 1 || c.FlushSize > FlushSizeMax:
		return fmt.Errorf("%w: FlushSize must be 1 to %d", sqlstore.ErrConfig, FlushSizeMax)
	case c.FlushInterval < time.Millisecond || c.FlushInterval > time.Minute:
		return fmt.Errorf("%w: FlushInterval must be 1ms to 1m", sqlstore.ErrConfig)
	case c.FlushTimeout < time.Millisecond:
		return fmt.Errorf("%w: FlushTimeout must be at least 1ms", sqlstore.ErrConfig)
	case c.Writers < 1 || c.Writers > writersMax:
		return fmt.Errorf("%w: Writers must be 1 to %d", sqlstore.ErrConfig, writersMax)
	case c.PendingMax < c.FlushSize:
		return fmt.Errorf("%w: PendingMax must be at least FlushSize", sqlstore.ErrConfig)
	}
	return nil
}
