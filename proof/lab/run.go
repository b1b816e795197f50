package lab

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
)

// Options of Run. Self is required.
type Options struct {
	Workload Workload
	// RedisURL and MySQLDSN are the servers to use; the lab starts one of its own for each that is empty.
	RedisURL, MySQLDSN string
	Self               Self
	Progress           func(done, total int, what string) // called before each strategy of each round; nil is no one
}

// Run climbs the ladder and reports. What it made on the servers is gone afterwards.
func Run(ctx context.Context, opts Options) (report Report, err error) {
	opts.Workload = opts.Workload.WithDefaults()
	if err := opts.Workload.Validate(); err != nil {
		return Report{}, err
	}
	if opts.Self == nil {
		return Report{}, fmt.Errorf("%w: Self is required", ErrConfig)
	}
	if opts.Progress == nil {
		opts.Progress = func(int, int, string) {}
	}
	s, err := openServers(ctx, Place{RedisURL: opts.RedisURL, MySQLDSN: opts.MySQLDSN})
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r, err := newRunner(ctx, opts, s)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	return r.climb(ctx)
}

// runner is a run under way.
type runner struct {
	opts    Options
	w       Workload
	id      string // of this run
	env     Env
	entries []Entry

	pool     pool // for all strategies: what one leaves in their heaps is little, and starting them again takes longer
	database string
	closeEnv func()
}

// newRunner makes the lab's own database and refuses a Redis in which a Dibs lives.
func newRunner(ctx context.Context, opts Options, s *servers) (*runner, error) {
	r := &runner{opts: opts, w: opts.Workload, id: "lab-" + uuid.NewString()[:8]}
	r.database = "dibs_" + strings.ReplaceAll(r.id, "-", "_")
	for _, name := range r.w.Strategies {
		entry, _ := StrategyNamed(name) // validated
		r.entries = append(r.entries, entry)
	}
	if err := r.createDatabase(ctx, s); err != nil {
		return nil, err
	}
	env, closeEnv, err := openEnv(s.place, 4, 4)
	if err != nil {
		return nil, err
	}
	r.env = env
	r.closeEnv = closeEnv
	r.env.Patience = r.w.Patience
	r.env.RetryPause = r.w.RetryPause
	r.env.Self = opts.Self
	err = r.checkEmpty(ctx)
	if err == nil {
		r.pool, err = startPool(opts.Self, r.w.Processes)
	}
	if err != nil {
		return nil, errors.Join(err, r.close(ctx))
	}
	return r, nil
}

func (r *runner) createDatabase(ctx context.Context, s *servers) error {
	cfg, err := mysql.ParseDSN(s.place.MySQLDSN)
	if err != nil {
		return fmt.Errorf("%w: MYSQL_DSN: %w", ErrConfig, err)
	}
	db, err := openSQL(s.place.MySQLDSN, 1)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+r.database+" CHARACTER SET utf8mb4"); err != nil {
		return fmt.Errorf("lab: the lab makes a database of its own, %s: %w", r.database, err)
	}
	cfg.DBName = r.database
	s.place.MySQLDSN = cfg.FormatDSN()
	return nil
}

// ErrInUse says that a Dibs lives in the Redis that the lab was given.
var ErrInUse = errors.New("lab: this redis is in use")

func (r *runner) checkEmpty(ctx context.Context) error {
	for _, pattern := range dibsKeys {
		keys, err := r.keys(ctx, pattern)
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			return fmt.Errorf("%w: it holds %s of a Dibs; give the lab a database of its own, such as redis://host:6379/9", ErrInUse, keys[0])
		}
	}
	return nil
}

func (r *runner) keys(ctx context.Context, pattern string) ([]string, error) {
	var keys []string
	scan := r.env.Redis.Scan(ctx, 0, pattern, 1000).Iterator()
	for scan.Next(ctx) {
		keys = append(keys, scan.Val())
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("lab: redis: %w", err)
	}
	return keys, nil
}

// clean removes the keys of this run.
func (r *runner) clean(ctx context.Context) error {
	for _, pattern := range slices.Concat(dibsKeys, []string{KeyPrefix + "{" + r.id + "*"}) {
		keys, err := r.keys(ctx, pattern)
		if err != nil {
			return err
		}
		for batch := range slices.Chunk(keys, 1000) {
			if err := r.env.Redis.Del(ctx, batch...).Err(); err != nil {
				return fmt.Errorf("lab: clean: %w", err)
			}
		}
	}
	return nil
}

// close sends the workers home and removes the database, also when ctx is over.
func (r *runner) close(ctx context.Context) error {
	err := r.pool.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
	defer cancel()
	_, dropErr := r.env.DB.ExecContext(ctx, "DROP DATABASE "+r.database)
	r.closeEnv()
	if dropErr != nil {
		dropErr = fmt.Errorf("lab: drop %s: %w", r.database, dropErr)
	}
	return errors.Join(err, dropErr)
}

// climb runs the rounds, every other one from the top down so that no strategy always comes first.
func (r *runner) climb(ctx context.Context) (Report, error) {
	rounds := make(map[string][]Round)
	locks := make(map[string]Lock)
	count := 0
	total := r.w.Rounds * len(r.entries)
	for round := range r.w.Rounds {
		order := slices.Clone(r.entries)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, entry := range order {
			r.opts.Progress(count, total, entry.Name)
			count++
			one, lock, err := r.stand(ctx, entry, round)
			if err != nil {
				return Report{}, fmt.Errorf("%s: %w", entry.Name, err)
			}
			rounds[entry.Name] = append(rounds[entry.Name], one)
			if lock != nil {
				locks[entry.Name] = *lock
			}
		}
	}
	r.opts.Progress(total, total, "done")
	report := Report{At: time.Now().UTC().Truncate(time.Second), Workload: r.w, Machine: machine(), Servers: r.versions(ctx)}
	for _, entry := range r.entries {
		report.Results = append(report.Results, newResult(entry, rounds[entry.Name], locks[entry.Name]))
	}
	report.compare()
	return report, nil
}

// machine says what the figures were taken on, apart from the servers.
func machine() []string {
	return []string{
		fmt.Sprintf("%d cores shared by servers, Dibs and claimers", runtime.NumCPU()), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// versions names the servers; one that does not say is not named.
func (r *runner) versions(ctx context.Context) []string {
	var all []string
	if info, err := r.env.Redis.InfoMap(ctx, "server").Result(); err == nil {
		if v := info["Server"]["valkey_version"]; v != "" {
			all = append(all, "Valkey "+v)
		} else {
			all = append(all, "Redis "+info["Server"]["redis_version"])
		}
	}
	var version string
	if err := r.env.DB.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err == nil {
		name := "MySQL "
		if strings.Contains(version, "MariaDB") {
			name = "MariaDB "
		}
		number, _, _ := strings.Cut(version, "-")
		all = append(all, name+number)
	}
	return all
}
