package lab

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrConfig is wrapped by every refusal of a Workload or of a place; the
// message names the field.
var ErrConfig = errors.New("lab: bad configuration")

// Campaign is what is handed out, one unit a user.
type Campaign struct {
	ID    string `json:"id"`
	Units int64  `json:"units"`
}

// Place says where the servers are.
type Place struct {
	RedisURL string `json:"redis_url"`
	MySQLDSN string `json:"mysql_dsn"` // with the lab's own database
	Endpoint string `json:"endpoint"`  // of the strategy's Service
}

// Terms are the rules of a claim. A worker process is told them as they are.
type Terms struct {
	Campaign    Campaign `json:"campaign"`
	Connections int      `json:"connections"` // claims at the same time in this process
	// how long a claim waits for a lock or a transaction
	Patience   time.Duration `json:"patience_ns"`
	RetryPause time.Duration `json:"retry_pause_ns"` // before it asks again, on average
	Lease      time.Duration `json:"lease_ns"`       // of locks that end by themselves
}

// Env is what a Strategy is given. Redis and DB are shared with others and not
// its own to close.
type Env struct {
	Place
	Terms

	Redis *redis.Client
	DB    *sql.DB

	// At is told of each step that a claim comes to; an error ends the claim
	// there as any failure would. Nil is no one.
	At func(Step) error
	// Self is this program, for services that are processes. Nil where none is
	// needed.
	Self Self
}

// DefaultLease is the lease of locks that end by themselves, in the article's
// order of magnitude.
const DefaultLease = 30 * time.Second

func (e *Env) at(step Step) error {
	if e.At == nil {
		return nil
	}
	return e.At(step)
}

// Keys of a campaign. All are of one cluster slot, so that no strategy is kept
// from a script.
func (e *Env) key(what string) string { return KeyPrefix + "{" + e.Campaign.ID + "}:" + what }
func (e *Env) stockKey() string       { return e.key("stock") }
func (e *Env) usersKey() string       { return e.key("users") }
func (e *Env) lockKey() string        { return e.key("lock") }
func (e *Env) packetsKey() string     { return e.key("packets") }
func (e *Env) takenKey() string       { return e.key("taken") } // who was given a unit, in order

// KeyPrefix is the start of every key of the lab's own.
const KeyPrefix = "dibs:lab:"

const (
	dialTimeout = 5 * time.Second
	ioTimeout   = 30 * time.Second
)

// openEnv connects to the servers of a place, with a connection to Redis for
// each claimer. closeAll closes both.
func openEnv(p Place, t Terms, sqlConnections int) (env Env, closeAll func(), err error) {
	opts, err := redis.ParseURL(p.RedisURL)
	if err != nil {
		return Env{}, nil, fmt.Errorf("%w: redis url: %w", ErrConfig, err)
	}
	cfg, err := mysql.ParseDSN(p.MySQLDSN)
	if err != nil {
		return Env{}, nil, fmt.Errorf("%w: mysql dsn: %w", ErrConfig, err)
	}
	cfg.InterpolateParams = true
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.ClientFoundRows = false // a row that stays as it was is not counted
	cfg.Timeout = dialTimeout
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return Env{}, nil, fmt.Errorf("%w: mysql dsn: %w", ErrConfig, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(sqlConnections)
	db.SetMaxIdleConns(sqlConnections)
	opts.MaxRetries = -1 // a DECR that is sent twice is two
	opts.Protocol = 2
	opts.DisableIdentity = true
	opts.PoolSize = t.Connections + 1
	opts.MinIdleConns = 1
	opts.DialTimeout = dialTimeout
	opts.ReadTimeout = ioTimeout
	opts.WriteTimeout = ioTimeout
	opts.PoolTimeout = ioTimeout
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	rdb := redis.NewClient(opts)
	return Env{Place: p, Terms: t, Redis: rdb, DB: db}, func() {
		_ = rdb.Close()
		_ = db.Close()
	}, nil
}
