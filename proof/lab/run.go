package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"dibs/internal/testkit/testenv"
)

// Errors of a run.
var (
	ErrNoServer = errors.New("lab: a server is missing")
	ErrInUse    = errors.New("lab: this redis is in use") // by a Dibs
)

// Options of Run. Self and Progress are required.
type Options struct {
	Workload Workload
	// RedisURL and MySQLDSN are the servers; the lab starts one for
	// each that is empty.
	RedisURL, MySQLDSN string
	Self               Self
	// Progress is called before each strategy of each round.
	Progress func(done, total int, what string)
}

// Run measures every strategy of the workload. It removes what
// it made on the servers.
func Run(ctx context.Context, opts Options) (report Report, err error) {
	if err := opts.Workload.Validate(); err != nil {
		return Report{}, err
	}
	host := testenv.NewProgram(ctx)
	defer func() { err = errors.Join(err, host.Close()) }()
	servers, err := openServers(host, Servers{RedisURL: opts.RedisURL, MySQLDSN: opts.MySQLDSN})
	if err != nil {
		return Report{}, err
	}
	r := &runner{opts: opts, w: opts.Workload, host: host, id: "lab-" + uuid.NewString()[:8]}
	if err := r.open(ctx, servers); err != nil {
		return Report{}, err
	}
	return r.rounds(ctx)
}

// openServers starts the servers missing in p: a Redis that keeps everything
// in memory, the least that Dibs' durability "fast" assumes, and a MariaDB
// that syncs commits to disk before it replies.
func openServers(host *testenv.Program, p Servers) (Servers, error) {
	err := host.Try(func() {
		if p.RedisURL == "" {
			p.RedisURL = testenv.Redis(host).URL()
		}
		if p.MySQLDSN == "" {
			p.MySQLDSN = testenv.SQLServer(host, "--datadir="+filepath.Join(host.TempDir(), "mysql"),
				"--max-connections=2100", "--innodb-buffer-pool-size=256M").DSN("")
		}
	})
	if err != nil {
		err = fmt.Errorf("%w: %w; or set DIBS_REDIS_URL and DIBS_MYSQL_DSN", ErrNoServer, err)
	}
	return p, err
}

type runner struct {
	opts Options
	w    Workload
	host *testenv.Program // cleans up
	id   string           // of this run
	env  Env
}

// open makes the lab's own database and refuses a Redis used by a Dibs.
func (r *runner) open(ctx context.Context, servers Servers) (err error) {
	terms := Terms{
		Connections: 4, Patience: r.w.Patience, RetryPause: r.w.RetryPause, Lease: DefaultLease,
	}
	given, closeGiven, err := openEnv(servers, terms, 1)
	if err != nil {
		return err
	}
	r.host.Cleanup(closeGiven)
	cfg, _ := mysql.ParseDSN(servers.MySQLDSN) // as openEnv did
	cfg.DBName = "dibs_" + strings.ReplaceAll(r.id, "-", "_")
	if _, err := given.DB.ExecContext(ctx, "CREATE DATABASE "+cfg.DBName+" CHARACTER SET utf8mb4"); err != nil {
		return fmt.Errorf("lab: the lab makes a database of its own, %s: %w", cfg.DBName, err)
	}
	r.host.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
		defer cancel()
		if _, err := given.DB.ExecContext(ctx, "DROP DATABASE "+cfg.DBName); err != nil {
			r.host.Errorf("%w", err)
		}
	})
	servers.MySQLDSN = cfg.FormatDSN()
	var closeEnv func()
	r.env, closeEnv, err = openEnv(servers, terms, 4)
	if err != nil {
		return err
	}
	r.host.Cleanup(closeEnv)
	r.env.Self = r.opts.Self
	keys, err := r.keys(ctx, dibsKeys)
	if err == nil && len(keys) > 0 {
		err = fmt.Errorf("%w: it holds %s of a Dibs; give the lab a database of its own, "+
			"such as redis://host:6379/9", ErrInUse, keys[0])
	}
	return err
}

func (r *runner) keys(ctx context.Context, patterns []string) (keys []string, err error) {
	for _, pattern := range patterns {
		scan := r.env.Redis.Scan(ctx, 0, pattern, 1000).Iterator()
		for scan.Next(ctx) {
			keys = append(keys, scan.Val())
		}
		if err := scan.Err(); err != nil {
			return nil, fmt.Errorf("lab: redis: %w", err)
		}
	}
	return keys, nil
}

func (r *runner) clean(ctx context.Context) error {
	keys, err := r.keys(ctx, slices.Concat(dibsKeys, []string{KeyPrefix + "{" + r.id + "*"}))
	for batch := range slices.Chunk(keys, 1000) {
		err = errors.Join(err, r.env.Redis.Del(ctx, batch...).Err())
	}
	return err
}

// rounds runs all rounds, every other one in reverse order, so
// that no strategy is always first.
func (r *runner) rounds(ctx context.Context) (Report, error) {
	entries, _ := r.w.Entries() // validated
	rounds := make(map[string][]Round)
	count := 0
	total := r.w.Rounds * len(entries)
	for round := range r.w.Rounds {
		order := slices.Clone(entries)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, entry := range order {
			r.opts.Progress(count, total, entry.Name)
			count++
			one, err := r.round(ctx, entry, round)
			if err != nil {
				return Report{}, fmt.Errorf("%s: %w", entry.Name, err)
			}
			rounds[entry.Name] = append(rounds[entry.Name], one)
		}
	}
	r.opts.Progress(total, total, "done")
	report := Report{At: time.Now().UTC().Truncate(time.Second), Workload: r.w, Servers: r.versions(ctx)}
	report.Machine = []string{ // the machine without the servers
		fmt.Sprintf("%d cores shared by servers, Dibs and claimers", runtime.NumCPU()),
		runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH,
	}
	for _, entry := range entries {
		report.Results = append(report.Results, newResult(entry, rounds[entry.Name]))
	}
	report.compare()
	return report, nil
}

func (r *runner) versions(ctx context.Context) []string {
	info, _ := r.env.Redis.InfoMap(ctx, "server").Result() // a server that reports none has no version
	redis := "Redis " + info["Server"]["redis_version"]
	if v := info["Server"]["valkey_version"]; v != "" {
		redis = "Valkey " + v
	}
	var version string
	_ = r.env.DB.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	name := "MySQL "
	if strings.Contains(version, "MariaDB") {
		name = "MariaDB "
	}
	number, _, _ := strings.Cut(version, "-")
	return []string{redis, name + number}
}
