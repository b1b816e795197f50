package e2e

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/sqlstore"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/migrations"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// lane is a Redis that one seed after the other uses.
type lane struct {
	redis *testenv.RedisServer
	lossy bool
}

func newLane(t *testing.T, lossy bool) *lane {
	t.Helper()
	if lossy {
		return &lane{testenv.Redis(t), true}
	}
	return &lane{testenv.Redis(t, append([]string{"aof-load-truncated no"}, durable...)...), false}
}

// house is a whole Dibs that a plan happens to.
type house struct {
	servers
	t        *testing.T
	plan     *plan
	sqlWire  *toxiproxy.Proxy // between all processes and MySQL
	apiWire  *toxiproxy.Proxy // between the API processes and Redis
	lives    []*life
	apis     []*life
	finance  *reader
	dramas   []*drama
	journal  journal
	dba      *dba
	restocks atomic.Int64 // counts beginnings and ends of whatever may put units back
}

// life is a process that somebody starts again whenever it ends, as an orchestrator does.
type life struct {
	*process
	roles string

	mu    sync.Mutex
	down  time.Time // not started again before
	stops chan struct{}
	done  chan struct{}
}

func newHouse(t *testing.T, l *lane, p *plan) *house {
	t.Helper()
	binary(t)
	rdb, err := lua.Connect(l.redis.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	if l.lossy {
		require.NoError(t, rdb.Save(t.Context()).Err()) // the last seed's snapshot is none of this one's
	}
	scripts, err := lua.New(rdb, lua.Options{Partitions: p.partitions})
	require.NoError(t, err)
	dsn := testenv.Database(t).DSN
	db, err := sqlstore.Open(t.Context(), sqlstore.Config{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	pool, err := db.DB()
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), pool, migrations.MySQL)
	require.NoError(t, err)
	h := &house{t: t, plan: p, servers: servers{
		redis: l.redis, redisURL: l.redis.URL(), dsn: dsn, partitions: p.partitions, rdb: rdb, scripts: scripts, db: pool,
	}}
	h.sqlWire, h.apiWire = testenv.Proxy(t, addrOf(t, dsn)), testenv.Proxy(t, l.redis.Addr())
	h.finance = readAlong(t, rdb, "finance", p.partitions)
	for n := range p.partitions {
		require.NoError(t, rdb.XGroupCreateMkStream(t.Context(), lua.StreamKey(n), "audit", "0").Err())
	}
	h.startAll()
	return h
}

func addrOf(t *testing.T, dsn string) string {
	t.Helper()
	c, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	return c.Addr
}

func (h *house) startAll() {
	h.t.Helper()
	if h.plan.serve {
		for i := range 2 {
			h.apis = append(h.apis, h.begin("serve", fmt.Sprintf("serve-%d", i), "api consumer syncer"))
		}
	} else {
		h.begin("consumer", "consumer-0", "consumer")
		if h.plan.seed%3 == 0 {
			h.begin("consumer", "consumer-1", "consumer")
		}
		h.begin("syncer", "", "syncer")
		h.begin("syncer", "", "syncer")
		h.apis = append(h.apis, h.begin("api", "", "api"), h.begin("api", "", "api"))
	}
	for _, l := range h.lives {
		l.awaitUp()
		go l.look()
		h.t.Cleanup(l.leave)
	}
}

// begin starts a process, and does not wait for it.
func (h *house) begin(command, name, roles string) *life {
	h.t.Helper()
	settings := map[string]string{
		"DIBS_PARTITIONS": fmt.Sprint(h.plan.partitions), "DIBS_REDIS_URL": h.redisURL,
		"DIBS_MYSQL_DSN": strings.Replace(h.dsn, addrOf(h.t, h.dsn), h.sqlWire.Listen, 1),
	}
	maps.Copy(settings, h.plan.settings)
	if h.plan.fsync {
		settings["DIBS_DURABILITY"] = "fsync"
	}
	if name != "" {
		settings["DIBS_NAME"] = name
	}
	if strings.Contains(roles, "api") {
		settings["DIBS_REDIS_URL"] = "redis://" + h.apiWire.Listen
	}
	l := &life{process: makeProcess(h.t, command, settings), roles: roles, stops: make(chan struct{}), done: make(chan struct{})}
	l.start()
	h.lives = append(h.lives, l)
	return l
}

// look starts the process again when it has ended, until leave.
func (l *life) look() {
	defer close(l.done)
	for {
		select {
		case <-l.stops:
			return
		case <-time.After(pollEvery):
		}
		l.mu.Lock()
		if l.ended() && time.Now().After(l.down) {
			l.start()
			l.down = time.Now().Add(100 * time.Millisecond) // one that refuses to start is not asked without end
		}
		l.mu.Unlock()
	}
}

func (l *life) ended() bool {
	select {
	case <-l.exited:
		return true
	default:
		return false
	}
}

func (l *life) leave() { close(l.stops); <-l.done }

// endBy ends the process somehow and leaves it dead for a while.
func (l *life) endBy(end func(), dead time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended() {
		end()
	}
	l.down = time.Now().Add(dead)
}

// of lists the processes that have a role.
func (h *house) of(role string) (all []*life) {
	for _, l := range h.lives {
		if strings.Contains(l.roles, role) {
			all = append(all, l)
		}
	}
	return all
}

// awaitAll waits until every process answers.
func (h *house) awaitAll() {
	h.t.Helper()
	deadline := time.Now().Add(upTimeout)
	for _, l := range h.lives {
		for !l.answers() {
			require.True(h.t, time.Now().Before(deadline), "dibs %s does not come up again:\n%s", l.command, l.tail())
			<-time.After(pollEvery)
		}
	}
}
