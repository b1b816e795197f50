package cmd_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

// API, consumer and syncer run separately on real servers. At the end
// Redis and MySQL must agree.
func TestTheRolesTogetherAreADibs(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	api := start(t, s.environ, "api")
	consumer := start(t, s.environ, "consumer")
	syncer := start(t, s.with("DIBS_GROUPS=syncer"), "syncer")
	api.post("/campaigns", `{"id":"spring","kind":"coupon","total":30,"per_user":1,"low_stock_at":5}`)
	var users []string
	for i := range 30 {
		users = append(users, fmt.Sprint("u", i))
	}
	api.claim("spring", users...)
	require.Equal(t, "sold_out", call(t, http.MethodPost, api.url+"/v1/campaigns/spring/claims", `{"user_id":"late"}`).code())
	api.synced("spring", 30)
	require.Less(t, s.number("SELECT COUNT(*) FROM stock_flushes WHERE campaign_id = 'spring'"), int64(30), "batches, not a statement a claim")
	eventually(t, "the comparison is not recorded", func() bool {
		return s.number("SELECT COUNT(*) FROM stock_watch WHERE campaign_id = 'spring' AND remaining = 0 AND drift = 0") == 1
	})
	for series, role := range map[string]*running{"dibs_script_seconds": api, "dibs_applier_read_total": consumer, "dibs_stream_": syncer} {
		eventually(t, "no "+series, func() bool { return strings.Contains(role.get("/metrics").body, series) })
	}
	for _, r := range []*running{api, consumer, syncer} {
		got := r.stop()
		require.Equal(t, cmd.ExitOK, got.code, got.stderr)
		require.Empty(t, got.stdout)
		require.NotContains(t, got.stderr, "level=ERROR")
	}
	requireOK(t, run(t, s.environ, "reconcile"))
}

func TestRolesRefuseServersThatCouldNotWork(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	evicting := testenv.Redis(t, "maxmemory-policy volatile-lru").URL()
	for _, role := range []string{"serve", "api", "consumer", "syncer", "reconcile", "finance"} {
		got := run(t, s.with("DIBS_REDIS_URL="+evicting), role, "--http-addr="+machine.Addr(t))
		requireRefusal(t, got, cmd.ExitFailed, "volatile-lru", "noeviction")
	}
	mute := testenv.Redis(t, `rename-command CONFIG ""`).Addr()
	mute = "redis://" + machine.Rewriting(t, mute, "maxmemory_policy", "xxxxxxxxx_policy")
	requireRefusal(t, run(t, s.with("DIBS_REDIS_URL="+mute), "reconcile"), cmd.ExitUsage, "add the option maxmemory_policy=noeviction if it is")
	requireOK(t, run(t, s.with("DIBS_REDIS_URL="+mute+"?maxmemory_policy=noeviction"), "reconcile"))
	for _, environ := range [][]string{s.with("DIBS_REDIS_URL=" + redisAway), s.with("DIBS_MYSQL_DSN=root@tcp(127.0.0.1:1)/dibs")} {
		got := run(t, environ, "reconcile") // a role would wait
		require.Equal(t, cmd.ExitFailed, got.code, got.stderr)
		require.Contains(t, got.stderr, "127.0.0.1:1")
	}
}

const redisAway = "redis://127.0.0.1:1"

// A MySQL that takes connections and never answers is away, like any other,
// and takes no time from the checks of Redis.
func TestRolesStartWhileMySQLHangs(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	redis := testenv.Redis(t, "appendonly yes", "appendfsync always", "aof-load-truncated no")
	environ := []string{
		"DIBS_REDIS_URL=" + redis.URL(), "DIBS_MYSQL_DSN=root@tcp(" + silent.Addr().String() + ")/dibs", "DIBS_DURABILITY=fsync",
	}
	for _, role := range []string{"api", "finance"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			started := time.Now()
			running := start(t, environ, role)
			require.Less(t, time.Since(started), 20*time.Second)
			require.Equal(t, cmd.ExitOK, running.stop().code)
		})
	}
}

func TestTheNumberOfPartitionsIsFixedByTheFirstCampaign(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	api := start(t, s.with("DIBS_PARTITIONS=2"), "api")
	api.post("/campaigns", `{"id":"spring","kind":"coupon","total":10}`)
	api.claim("spring", "u1")
	for _, role := range []string{"serve", "api", "consumer", "syncer", "reconcile"} {
		got := run(t, s.with("DIBS_PARTITIONS=3"), role, "--http-addr="+machine.Addr(t))
		requireRefusal(t, got, cmd.ExitUsage, "DIBS_PARTITIONS", "2", "3")
	}
	consumer := start(t, s.with("DIBS_PARTITIONS=2"), "consumer")
	api.synced("spring", 1)
	require.Equal(t, cmd.ExitOK, consumer.stop().code)
}

// Of two consumers with one name, the second must refuse to start and the
// first continue. The name must be free once the first has stopped.
func TestTwoConsumersUnderOneName(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"consumer", "finance"} {
		s := newServers(t)
		requireOK(t, run(t, s.environ, "migrate"))
		first := start(t, s.environ, role)
		second := run(t, s.with("DIBS_NAME="+role), role)
		require.Equal(t, cmd.ExitUsage, second.code, second.stderr)
		require.Contains(t, second.stderr, `DIBS_NAME: another process reads as "`+role+`" in group `)
		require.False(t, first.over())
		other := start(t, s.with("DIBS_NAME=another"), role)
		require.Zero(t, other.stop().code)
		require.Zero(t, first.stop().code)
		start(t, s.environ, role)
	}
}

// Such a Redis refuses CONFIG and ACL, and its INFO lacks fields that
// some managed servers omit. Claims must still be possible.
func TestAManagedRedisThatHidesWhatItCan(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	addr := testenv.Redis(t, `rename-command CONFIG ""`, `rename-command ACL ""`, "appendonly yes").Addr()
	for _, field := range []string{"maxmemory_policy", "run_id", "connected_slaves", "role", "aof_enabled", "loading", "used_memory"} {
		addr = machine.Rewriting(t, addr, "\n"+field+":", "\n"+strings.Repeat("x", len(field))+":")
	}
	environ := s.with("DIBS_REDIS_URL=redis://" + addr + "?maxmemory_policy=noeviction")
	serve := start(t, environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":40}`)
	for i := range 40 {
		serve.claim("spring", fmt.Sprint("user-", i))
	}
	serve.synced("spring", 40)
	serve.stop()
	require.Contains(t, requireOK(t, run(t, environ, "reconcile")), "agree")
}

// A role that is stopped while it still connects must end soon and
// without failure. A command that had something to find out must fail.
func TestAStopBeforeTheStartIsNoFailure(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for command, want := range map[string]int{
		"serve": cmd.ExitOK, "api": cmd.ExitOK, "consumer": cmd.ExitOK, "syncer": cmd.ExitOK, "finance": cmd.ExitOK,
		"reconcile": cmd.ExitFailed, "migrate": cmd.ExitFailed, "finance parked": cmd.ExitFailed,
	} {
		said := &testenv.Buffer{}
		args := append(strings.Fields(command), "--http-addr", machine.Addr(t))
		code := cmd.Run(ctx, cmd.Env{Args: args, Environ: s.environ, Stdout: said, Stderr: said})
		require.Equal(t, want, code, "%s\n%s", command, said)
		code = cmd.Run(ctx, cmd.Env{Args: append(args, "--partitions=0"), Environ: s.environ, Stdout: said, Stderr: said})
		require.Equal(t, cmd.ExitUsage, code, "%s: a mistake is one all the same", command)
	}
}
