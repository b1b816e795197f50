package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

// Topologies of Redis.
const (
	Alone    = "alone"
	Sentinel = "sentinel"
	Cluster  = "cluster"
)

// deadAfter is a node's silence before the cluster or the
// Sentinels declare it dead.
const deadAfter = 1500 * time.Millisecond

// awayGroup is a consumer group that reads only at the end of a
// round: Dibs must have kept the entries for it.
const awayGroup = "audit"

// world is a whole Dibs: servers, connections and processes.
type world struct {
	*testenv.Program

	ctx        context.Context //nolint:containedctx // of the whole run
	opt        *Options
	partitions int
	redis      []*testenv.RedisServer // all nodes
	cluster    *testenv.ReplicatedCluster
	sentinels  *testenv.SentinelSet
	redisURL   string
	sql        *testenv.MySQLServer
	maria      bool
	rdb        redis.UniversalClient // direct to Redis
	db         *sql.DB               // direct to MySQL, as root
	parts      []*part
	apis       []*part
	spares     []*part // one of each kind, started by a fault
	evicting   bool    // processes have a short DIBS_IDLE_EVICT
	inForce    []lot   // the round's lots, by id
	disks      disks
	clock      *testenv.Clock // of Redis; nil: the machine's
	noClock    error          // why
	hook       *hook          // webhook receiver
}

// newWorld starts everything and waits until it answers.
func newWorld(ctx context.Context, opt *Options) (*world, error) {
	w := &world{Program: testenv.NewProgram(ctx), ctx: ctx, opt: opt, partitions: 2}
	err := w.Try(w.startServers)
	if err == nil {
		err = w.prepare()
	}
	if err == nil {
		err = w.Try(w.startParts)
	}
	for _, p := range w.parts {
		if err == nil {
			err = p.awaitUp(ctx, time.Minute)
		}
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *world) startServers() {
	w.disks = w.newDisks()
	// a copy of the file is a snapshot while it is never rewritten
	conf := []string{"appendonly yes", "auto-aof-rewrite-percentage 0"}
	if w.opt.Durability.IsFsync() {
		conf = append(conf, "appendfsync always", "no-appendfsync-on-rewrite no", "aof-load-truncated no")
	}
	switch w.opt.Topology {
	case Cluster:
		w.partitions = 6
		w.cluster = testenv.RedisReplicatedCluster(w.Program, 3, deadAfter, conf...)
		w.redis = w.cluster.Nodes()
		w.redisURL = w.cluster.URL()
	case Sentinel:
		conf = append(conf, "repl-diskless-sync-delay 0")
		primary := testenv.Redis(w.Program, conf...)
		replica := testenv.Redis(w.Program, conf...)
		testenv.Replicate(w.Program, replica, primary)
		w.sentinels = testenv.Sentinels(w.Program, primary, 1, deadAfter)
		w.redis = []*testenv.RedisServer{primary, replica}
		w.redisURL = w.sentinels.URL()
	default:
		if w.disks.redis != nil {
			conf = append(conf, "dir "+w.disks.redis.Path())
		}
		var server *testenv.RedisServer
		w.clock, w.noClock = testenv.NewClock(w.Program)
		if w.noClock == nil {
			server = w.clock.Redis(conf...)
		} else {
			server = testenv.Redis(w.Program, conf...)
		}
		w.redis = []*testenv.RedisServer{server}
		w.redisURL = server.URL()
	}
	w.partitions = max(w.partitions, w.opt.Shards)
	var options []string
	if w.disks.sql != nil {
		options = append(options, "--datadir="+filepath.Join(w.disks.sql.Path(), "data"))
	}
	w.sql = testenv.SQLServer(w.Program, options...)
}

// user is Dibs' MySQL user. Unlike root, it can't write while
// the server is read-only.
const user = "dibs"

func (w *world) prepare() (err error) {
	w.rdb, err = redisconn.Connect(w.redisURL)
	if err != nil {
		return err
	}
	w.Cleanup(func() { _ = w.rdb.Close() })
	var dsn string
	if err := w.Try(func() { dsn = w.sql.DSN("dibs") }); err != nil {
		return err
	}
	w.db, err = sql.Open("mysql", dsn)
	if err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	w.Cleanup(func() { _ = w.db.Close() })
	var version string
	if err := w.db.QueryRowContext(w.ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	w.maria = strings.Contains(version, "MariaDB")
	for _, statement := range []string{"CREATE USER " + user + "@'%'", "GRANT ALL ON dibs.* TO " + user + "@'%'"} {
		if _, err := w.db.ExecContext(w.ctx, statement); err != nil {
			return fmt.Errorf("torture: %s: %w", statement, err)
		}
	}
	w.hook, err = newHook(w.Program)
	if err != nil {
		return err
	}
	if out, err := w.dibs("migrate"); err != nil {
		return fmt.Errorf("torture: dibs migrate: %w: %s", err, out)
	}
	for p := range w.partitions {
		if err := w.rdb.XGroupCreateMkStream(w.ctx, lua.StreamKey(p), awayGroup, "0").Err(); err != nil {
			return fmt.Errorf("torture: %w", err)
		}
	}
	return nil
}

// dsnAt is Dibs' DSN for the database behind an address; "" is
// the server's own.
func (w *world) dsnAt(addr string) string {
	c := mysql.NewConfig()
	c.User = user
	c.Net = "tcp"
	c.Addr = w.sql.Addr()
	c.DBName = "dibs"
	c.ParseTime = true
	c.InterpolateParams = true
	c.Loc = time.UTC
	if addr != "" {
		c.Addr = addr
	}
	return c.FormatDSN()
}

var roles = []role{{"consumer", 2}, {"syncer", 2}, {"finance", 1}, {"webhooks", 1}, {"api", 2}}

// rolesInOne are a world's processes if one has all roles but
// finance and webhooks.
var rolesInOne = []role{{"finance", 1}, {"webhooks", 1}, {serve, 2}}

type role struct {
	kind string
	n    int
}

// serve is a process that is API, consumer and syncer.
const serve = "serve"

func (w *world) startParts() {
	folder := w.TempDir()
	chosen := roles
	if w.opt.Serve {
		chosen = rolesInOne
	}
	for _, role := range chosen {
		for i := range role.n {
			p := w.newPart(role.kind, fmt.Sprintf("%s-%d", role.kind, i+1), folder)
			w.parts = append(w.parts, p)
			if p.front != nil {
				w.apis = append(w.apis, p)
			}
		}
		w.spares = append(w.spares, w.newPart(role.kind, fmt.Sprintf("%s-%d", role.kind, role.n+1), folder))
	}
	for _, p := range w.parts {
		if err := p.keep(); err != nil {
			w.Fatalf("%v", err)
		}
		w.Cleanup(func() { p.end(0) })
		if p.front != nil {
			asking, stop := context.WithCancel(w.ctx)
			var asker sync.WaitGroup
			asker.Go(func() { p.askReady(asking) })
			w.Cleanup(func() { stop(); asker.Wait() })
		}
	}
}

// newPart makes a process with its own proxies to Redis and
// MySQL, and in front of an API.
func (w *world) newPart(kind, name, folder string) *part {
	p := &part{kind: kind, name: name, binary: w.opt.Binary, log: filepath.Join(folder, name+".log"), probe: "/healthz"}
	settings := maps.Clone(w.settings())
	p.toSQL = machine.Proxy(w.Program, w.sql.Addr())
	settings["DIBS_MYSQL_DSN"] = w.dsnAt(p.toSQL.Listen)
	if w.opt.Topology == Alone { // elsewhere clients get the nodes' own addresses
		p.toRedis = machine.Proxy(w.Program, w.redis[0].Addr())
		settings["DIBS_REDIS_URL"] = "redis://" + p.toRedis.Listen
	}
	addr := machine.Addr(w.Program)
	p.url = "http://" + addr
	settings["DIBS_NAME"] = name
	if kind == "api" || kind == serve {
		settings["DIBS_HTTP_ADDR"] = addr
		p.probe = "/readyz"
		p.front = machine.Proxy(w.Program, addr)
		p.frontURL = "http://" + p.front.Listen
	} else {
		settings["DIBS_METRICS_ADDR"] = addr
	}
	p.env = environ(settings)
	return p
}

func (w *world) settings() map[string]string {
	all := map[string]string{
		"DIBS_PARTITIONS": strconv.Itoa(w.partitions), "DIBS_REDIS_URL": w.redisURL, "DIBS_MYSQL_DSN": w.dsnAt(""),
		"DIBS_GROUPS": "syncer,finance,webhooks," + awayGroup, "DIBS_WEBHOOKS_FILE": w.hook.file,
		"DIBS_SHUTDOWN_TIMEOUT": "5s", "DIBS_FLUSH_SIZE": "100", "DIBS_FLUSH_INTERVAL": "20ms",
		"DIBS_DURABILITY": w.opt.Durability.String(),
	}
	return all
}

// evict makes campaigns leave Redis after a moment without claims, or stay.
func (w *world) evict(on bool) {
	if on == w.evicting {
		return
	}
	w.evicting = on
	idle := "30m"
	if on {
		idle = "500ms"
	}
	for _, p := range w.of("syncer") {
		p.set("DIBS_IDLE_EVICT=" + idle)
		p.signal(syscall.SIGTERM)
	}
}

// environ is this process' environment without settings of Dibs, plus these.
func environ(settings map[string]string) []string {
	all := slices.DeleteFunc(os.Environ(), func(line string) bool { return strings.HasPrefix(line, "DIBS_") })
	for name, value := range settings {
		all = append(all, name+"="+value)
	}
	return all
}

// dibsMax limits a command that ends by itself.
const dibsMax = 2 * time.Minute

// dibs runs a Dibs command to its end, directly on the servers.
func (w *world) dibs(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.ctx, dibsMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.opt.Binary, args...) //nolint:gosec // a dibs
	settings := w.settings()
	delete(settings, "DIBS_DURABILITY")
	cmd.Env = environ(settings)
	out, err := cmd.CombinedOutput()
	return string(out), err //nolint:wrapcheck // the caller checks the exit code
}

// of lists the processes of a kind, including those of all roles.
func (w *world) of(kind string) []*part { return ofKind(w.parts, kind) }

func (w *world) spare(kind string) *part { return ofKind(w.spares, kind)[0] }

func ofKind(parts []*part, kind string) []*part {
	return slices.DeleteFunc(slices.Clone(parts), func(p *part) bool {
		return p.kind != kind && (p.kind != serve || kind == "finance" || kind == "webhooks")
	})
}

// toSQL ends the names of connections to the SQL server.
const toSQL = "–sql"

// wire is a connection that can be cut or slowed.
type wire struct {
	name  string
	proxy *toxiproxy.Proxy
}

func (w *world) wires() (all []wire) {
	for _, p := range w.parts {
		all = append(all, wire{p.name + toSQL, p.toSQL})
		if p.toRedis != nil {
			all = append(all, wire{p.name + "–redis", p.toRedis})
		}
		if p.front != nil {
			all = append(all, wire{"clients–" + p.name, p.front})
		}
	}
	return all
}
