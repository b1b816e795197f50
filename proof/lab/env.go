package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrConfig is wrapped by every refusal of a Workload or of a place; the message names the field.
var ErrConfig = errors.New("lab: bad configuration")

// Campaign is what is handed out.
type Campaign struct {
	ID      string `json:"id"`
	Units   int64  `json:"units"`
	PerUser int64  `json:"per_user"` // units a user may have; 0 is no limit
}

// Place says where the servers are.
type Place struct {
	RedisURL string `json:"redis_url"`
	MySQLDSN string `json:"mysql_dsn"` // with the lab's own database
	Endpoint string `json:"endpoint"`  // of the strategy's Service
}

// Env is what a Strategy is given. Redis and DB are shared with others and not its own to close.
type Env struct {
	Place

	Redis       *redis.Client
	DB          *sql.DB
	Campaign    Campaign
	Connections int           // claims at the same time in this process
	Patience    time.Duration // how long a claim waits for a lock or a transaction
	RetryPause  time.Duration // how long a waiter for a lock waits before it asks again, on average
	Lease       time.Duration // of locks that end by themselves

	// At is notified of each step that a claim comes to; an error ends the claim there as any failure would. Nil is no one.
	At func(Step) error
	// Self is this program, for services that are processes. Nil where none is needed.
	Self Self
}

// DefaultLease is the lease of locks that end by themselves, in the article's order of magnitude.
const DefaultLease = 30 * time.Second

func (e *Env) at(step Step) error {
	if e.At == nil {
		return nil
	}
	return e.At(step)
}

// Keys of a campaign. All are of one cluster slot, so that no strategy is kept from a script.
func (e *Env) key(what string) string { return KeyPrefix + "{" + e.Campaign.ID + "}:" + what }
func (e *Env) stockKey() string       { return e.key("stock") }
func (e *Env) usersKey() string       { return e.key("users") }
func (e *Env) lockKey() string        { return e.key("lock") }

// KeyPrefix is the start of every key of the lab's own.
const KeyPrefix = "dibs:lab:"

const (
	dialTimeout = 5 * time.Second
	ioTimeout   = 30 * time.Second
)

// openEnv connects to the servers of a place. close closes both.
func openEnv(p Place, connections, sqlConnections int) (env Env, closeAll func(), err error) {
	rdb, err := openRedis(p.RedisURL, connections)
	if err != nil {
		return Env{}, nil, err
	}
	db, err := openSQL(p.MySQLDSN, sqlConnections)
	if err != nil {
		_ = rdb.Close()
		return Env{}, nil, err
	}
	env = Env{Place: p, Redis: rdb, DB: db, Connections: connections, Lease: DefaultLease, RetryPause: DefaultRetryPause}
	return env, func() {
		_ = rdb.Close()
		_ = db.Close()
	}, nil
}

// openRedis makes a client with a connection for each claimer. It repeats nothing by itself: a DECR sent twice is two.
func openRedis(url string, connections int) (*redis.Client, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("%w: redis url: %w", ErrConfig, err)
	}
	opts.MaxRetries = -1
	opts.Protocol = 2
	opts.DisableIdentity = true
	opts.PoolSize = connections + 1
	opts.MinIdleConns = 1
	opts.DialTimeout = dialTimeout
	opts.ReadTimeout = ioTimeout
	opts.WriteTimeout = ioTimeout
	opts.PoolTimeout = ioTimeout
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(opts), nil
}

func openSQL(dsn string, connections int) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("%w: mysql dsn: %w", ErrConfig, err)
	}
	cfg.InterpolateParams = true
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.ClientFoundRows = false
	cfg.Timeout = dialTimeout
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: mysql dsn: %w", ErrConfig, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// isMySQL reports whether err is the server's error of one of these numbers.
func isMySQL(err error, numbers ...uint16) bool {
	var refused *mysql.MySQLError
	if !errors.As(err, &refused) {
		return false
	}
	return slices.Contains(numbers, refused.Number)
}

// within gives ctx the patience of a claim.
func (e *Env) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.Patience)
}
