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

// ErrConfig is wrapped by every refusal of a Workload or of
// Servers. The message names the field.
var ErrConfig = errors.New("lab: bad configuration")

// Campaign has units to hand out, one per user.
type Campaign struct {
	ID    string `json:"id"`
	Units int64  `json:"units"`
}

// Servers has the addresses of the servers.
type Servers struct {
	RedisURL string `json:"redis_url"`
	MySQLDSN string `json:"mysql_dsn"` // with the lab's own database
	Endpoint string `json:"endpoint"`  // of the strategy's Service
}

// Terms are the rules of a claim, sent unchanged to worker processes.
type Terms struct {
	Campaign    Campaign `json:"campaign"`
	Connections int      `json:"connections"` // concurrent claims in this process
	// limit of a claim's wait for a lock or a transaction
	Patience   time.Duration `json:"patience_ns"`
	RetryPause time.Duration `json:"retry_pause_ns"` // average pause before a retry
	Lease      time.Duration `json:"lease_ns"`       // of locks that expire
}

// Env is a Strategy's environment. Redis and DB are shared; the
// Strategy must not close them.
type Env struct {
	Servers
	Terms

	Redis *redis.Client
	DB    *sql.DB

	// At is called at each step of a claim. An error fails the claim
	// there. It may be nil.
	At func(Step) error
	// Self runs this program, for services that are processes; nil
	// if there are none.
	Self Self
}

// DefaultLease is the lease of locks that expire, of the
// article's order of magnitude.
const DefaultLease = 30 * time.Second

func (e *Env) at(step Step) error {
	if e.At == nil {
		return nil
	}
	return e.At(step)
}

// Keys of a campaign, all in one cluster slot, so that any
// strategy can use scripts.
func (e *Env) key(what string) string { return KeyPrefix + "{" + e.Campaign.ID + "}:" + what }
func (e *Env) stockKey() string       { return e.key("stock") }
func (e *Env) usersKey() string       { return e.key("users") }
func (e *Env) lockKey() string        { return e.key("lock") }
func (e *Env) packetsKey() string     { return e.key("packets") }
func (e *Env) takenKey() string       { return e.key("taken") } // users who got a unit, in order

// KeyPrefix starts every key of the lab.
const KeyPrefix = "dibs:lab:"

const (
	dialTimeout = 5 * time.Second
	ioTimeout   = 30 * time.Second
)

// openEnv connects to the servers, with a Redis connection
// for each claimer. closeAll closes both.
func openEnv(p Servers, t Terms, sqlConnections int) (env Env, closeAll func(), err error) {
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
	cfg.ClientFoundRows = false // unchanged rows are not counted
	cfg.Timeout = dialTimeout
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return Env{}, nil, fmt.Errorf("%w: mysql dsn: %w", ErrConfig, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(sqlConnections)
	db.SetMaxIdleConns(sqlConnections)
	opts.MaxRetries = -1 // a repeated DECR would count twice
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
	return Env{Servers: p, Terms: t, Redis: rdb, DB: db}, func() {
		_ = rdb.Close()
		_ = db.Close()
	}, nil
}
