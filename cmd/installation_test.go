package cmd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

func installationRow(t *testing.T, dsn string) (value string) {
	t.Helper()
	require.NoError(t, openSQL(t, dsn).QueryRow("SELECT value FROM settings WHERE name = 'installation'").Scan(&value))
	return value
}

// installationOf is the id of the installation that a MySQL belongs to.
func installationOf(t *testing.T, dsn string) string {
	t.Helper()
	id, _, _ := strings.Cut(installationRow(t, dsn), " ")
	return id
}

// rolesThatRead are the roles and commands that open both servers.
var rolesThatRead = []string{"consumer", "syncer", "api", "serve", "finance", "webhooks", "reconcile"}

// requireForeign expects roles to end at their start and to name
// both installations.
func requireForeign(t *testing.T, roles, environ []string, ids ...string) {
	t.Helper()
	_, file := newHook(t)
	for _, role := range roles {
		got := run(t, append(environ, "DIBS_HTTP_ADDR=127.0.0.1:0", file), role)
		requireRefusal(t, got, cmd.ExitUsage, append(ids, "DIBS_REDIS_URL", "DIBS_MYSQL_DSN")...)
	}
}

// groupsOf are the claim stream's consumer groups with their pending
// and read counts.
func groupsOf(t *testing.T, rdb redis.UniversalClient) map[string]string {
	t.Helper()
	groups, err := rdb.XInfoGroups(t.Context(), "dibs:{p0}:claims").Result()
	require.NoError(t, err)
	all := map[string]string{}
	for _, g := range groups {
		all[g.Name] = fmt.Sprint(g.LastDeliveredID, g.Pending, g.Consumers)
	}
	return all
}

// A second deployment with its own MySQL on the first one's Redis must end at
// its start, whatever it runs, without reading or acknowledging anything.
func TestASecondDeploymentOnARedisEndsAtItsStart(t *testing.T) {
	t.Parallel()
	first := newServers(t)
	serve := start(t, first.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":99}`)
	serve.claim("spring", "ada", "bob")
	serve.synced("spring", 2)
	serve.stop()
	api := start(t, first.environ, "api") // without a reader, claims stay in the stream
	api.claim("spring", "eve", "zoe", "kim")
	before := groupsOf(t, first.rdb)

	second := testenv.Database(t).DSN
	environ := []string{first.environ[0], "DIBS_MYSQL_DSN=" + second, "DIBS_NAME=staging"}
	requireOK(t, run(t, environ, "migrate"))
	requireForeign(t, rolesThatRead, environ, installationOf(t, first.dsn), installationOf(t, second), "by staging)", "restore it from its dump")
	require.Equal(t, before, groupsOf(t, first.rdb), "nothing was read, acked or registered")
	var rows int
	require.NoError(t, openSQL(t, second).QueryRow("SELECT (SELECT COUNT(*) FROM claims) + (SELECT COUNT(*) FROM parked_events)").Scan(&rows))
	require.Zero(t, rows)
	api.stop()
	serve = start(t, first.environ, "serve")
	serve.synced("spring", 5)

	// The same if it has campaigns of its own.
	own := newServers(t)
	other := start(t, own.environ, "serve")
	other.post("/campaigns", coupon)
	other.claim("spring", "ada")
	other.stop()
	requireForeign(t, rolesThatRead[:1], []string{first.environ[0], own.environ[1]}, installationOf(t, first.dsn), installationOf(t, own.dsn))
	requireForeign(t, rolesThatRead[:1], []string{own.environ[0], first.environ[1]}, installationOf(t, first.dsn), installationOf(t, own.dsn))

	// If Redis lost only the id, a MySQL without campaigns must not get it.
	serve.stop()
	require.NoError(t, first.rdb.HDel(t.Context(), "dibs:info", "installation").Err())
	requireForeign(t, rolesThatRead[:1], environ, installationOf(t, second), "no campaigns", "restore it from its dump")
	requireOK(t, run(t, first.environ, "reconcile"))
}

// A Redis that lost everything must belong to its MySQL's installation
// again, even while processes run, which must continue.
func TestARedisThatLostEverythingStaysWithItsMySQL(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", coupon)
	mine := installationOf(t, s.dsn)
	of := func() string {
		value, _ := s.rdb.HGet(context.Background(), "dibs:info", "installation").Result()
		id, _, _ := strings.Cut(value, " ")
		return id
	}
	require.Equal(t, mine, of())
	require.NoError(t, s.rdb.Do(t.Context(), "FLUSHALL").Err())
	eventually(t, "Redis has its id again", func() bool { return of() == mine })
	require.False(t, serve.over())
	serve.stop()

	// An empty Redis of another installation may be taken, unless that
	// one has a running process.
	other := newServers(t)
	api := start(t, other.environ, "api")
	eventually(t, "it says that it runs", func() bool { return other.rdb.Exists(t.Context(), "dibs:processes").Val() == 1 })
	requireRefusal(t, run(t, []string{other.environ[0], s.environ[1]}, "reconcile"), cmd.ExitUsage, mine, installationOf(t, other.dsn), "`dibs api`")
	api.stop()
	requireOK(t, run(t, []string{other.environ[0], s.environ[1]}, "reconcile"))
}

// Two installations that start at once on an empty Redis must not both
// get it.
func TestOnlyOneInstallationGetsAnEmptyRedis(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t)
	var running []*running
	for range 3 {
		dsn := testenv.Database(t).DSN
		environ := []string{"DIBS_REDIS_URL=" + rdb.URL(), "DIBS_MYSQL_DSN=" + dsn, "DIBS_NAME=" + testenv.UniqueID(t, "n")}
		requireOK(t, run(t, environ, "migrate"))
		running = append(running, launch(t, environ, "consumer"))
	}
	ended := func() (n int) {
		for _, r := range running {
			if r.over() {
				require.Equal(t, cmd.ExitUsage, r.end.code)
				require.Contains(t, r.end.stderr, "two installations")
				n++
			}
		}
		return n
	}
	eventually(t, "two end", func() bool { return ended() == 2 })
	const checkAndHalf = 3 * time.Second
	require.Never(t, func() bool { return ended() != 2 }, checkAndHalf, 100*time.Millisecond, "one goes on")
}

// A finance service's own database belongs to the installation whose
// events it has.
func TestBooksOfAnotherInstallationAreRefused(t *testing.T) {
	t.Parallel()
	first := newServers(t)
	second := newServers(t)
	books := testenv.Database(t).DSN
	requireOK(t, run(t, []string{"DIBS_FINANCE_DSN=" + books}, "migrate"))
	for _, s := range []*servers{first, second} {
		requireOK(t, run(t, s.environ, "reconcile")) // Redis gets its id
	}
	requireOK(t, run(t, []string{first.environ[0], "DIBS_FINANCE_DSN=" + books}, "finance", "parked"))
	finance := start(t, []string{first.environ[0], "DIBS_FINANCE_DSN=" + books}, "finance")
	finance.stop()
	got := run(t, []string{second.environ[0], "DIBS_FINANCE_DSN=" + books}, "finance")
	requireRefusal(t, got, cmd.ExitUsage, "DIBS_FINANCE_DSN", installationOf(t, first.dsn), installationOf(t, second.dsn))
}

// A role that starts while MySQL is unreachable must read no stream
// before the installations were compared.
func TestARoleReadsNothingBeforeItKnowsItsInstallation(t *testing.T) {
	t.Parallel()
	first := newServers(t)
	api := start(t, first.environ, "api")
	api.post("/campaigns", coupon)
	api.claim("spring", "ada")
	second := testenv.Database(t).DSN
	requireOK(t, run(t, []string{"DIBS_MYSQL_DSN=" + second}, "migrate"))
	config, err := mysql.ParseDSN(second)
	require.NoError(t, err)
	proxy := machine.Proxy(t, config.Addr)
	proxy.Stop()
	config.Addr = proxy.Listen
	for _, role := range []string{"consumer", "syncer"} {
		r := launch(t, []string{first.environ[0], "DIBS_MYSQL_DSN=" + config.FormatDSN(), "DIBS_NAME=second"}, role)
		eventually(t, "it waits", func() bool {
			return strings.Contains(r.problems.String(), "is not known yet; no stream is read before")
		})
		require.Empty(t, groupsOf(t, first.rdb), "no group was made, so nothing was read")
		require.NoError(t, proxy.Start())
		got := r.wait()
		require.Equal(t, cmd.ExitUsage, got.code, got.stderr)
		require.Contains(t, got.stderr, "two installations")
		require.Empty(t, groupsOf(t, first.rdb))
		proxy.Stop()
	}
}
