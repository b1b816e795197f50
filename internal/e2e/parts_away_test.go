package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

func readiness(t *testing.T, p *process) (status int, away []string, detail string) {
	t.Helper()
	got := call(t, http.MethodGet, p.url+"/readyz", "", nil)
	var body struct {
		Away   []string `json:"away"`
		Detail string   `json:"detail"`
	}
	require.NoError(t, json.Unmarshal([]byte(got.body), &body), got.body)
	return got.status, body.Away, body.Detail
}

// With one cluster primary permanently down, a running API must stay ready,
// every role must start, and each must report what is missing.
func TestEveryRoleStartsAndWorksWhileOnePrimaryIsAway(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{
		masters: 3, replicated: true, partitions: 6, redisConf: []string{"cluster-require-full-coverage no", "repl-diskless-sync-delay 0"},
	})
	settings := map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn, "DIBS_PARTITIONS": "6"}
	running := newProcess(t, "api", settings)
	stream := lua.StreamKey(0)
	first := s.cluster.MasterOf(stream)
	var away, there []string
	for p := range 6 {
		name := fmt.Sprint("redis partition ", p)
		if s.cluster.MasterOf(lua.StreamKey(p)) == first {
			away = append(away, name)
		} else {
			there = append(there, name)
		}
	}
	require.NotEmpty(t, there)
	first.Kill()
	s.cluster.AwaitPromotion(first, stream)
	second := s.cluster.MasterOf(stream)
	second.Kill()
	require.Eventually(t, func() bool {
		status, named, _ := readiness(t, running)
		require.Equal(t, http.StatusOK, status, "claims of the other partitions are answered")
		return slices.Equal(away, named)
	}, upTimeout, pollEvery)
	metrics := call(t, http.MethodGet, running.url+"/metrics", "", nil).body
	require.Contains(t, metrics, `dibs_part_up{part="`+away[0]+`"} 0`)
	require.Contains(t, metrics, `dibs_part_up{part="`+there[0]+`"} 1`)
	require.Contains(t, metrics, `dibs_part_up{part="mysql"} 1`)

	var started []*process
	for _, role := range []string{"api", "consumer", "syncer", "finance"} {
		started = append(started, newProcess(t, role, settings))
	}
	status, named, _ := readiness(t, started[0])
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, away, named)
	require.Contains(t, started[0].output(), "the process starts, and checks it again")
	second.Start()
	for _, p := range started {
		require.Eventually(t, func() bool { return strings.Contains(p.output(), "redis is there") }, upTimeout, pollEvery, p.command)
	}
	require.Eventually(t, func() bool { _, named, _ := readiness(t, running); return len(named) == 0 }, upTimeout, pollEvery)
	for _, p := range append(started, running) {
		p.stop()
	}
}

// Roles must wait for their Redis and MySQL. A Redis that evicts
// must end them once that is known.
func TestEveryRoleWaitsForItsServers(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{ownSQL: true})
	settings := map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn}
	evicting := testenv.Redis(t, "maxmemory-policy allkeys-lru")
	s.redis.Kill()
	s.sql.Kill()
	evicting.Kill()
	var roles []*process
	for _, role := range []string{"api", "consumer", "syncer", "finance"} {
		p := makeProcess(t, role, settings)
		p.probe = "/healthz"
		p.start()
		roles = append(roles, p)
	}
	wrong := makeProcess(t, "api", map[string]string{"DIBS_REDIS_URL": evicting.URL(), "DIBS_MYSQL_DSN": s.dsn})
	wrong.probe = "/healthz"
	wrong.start()
	for _, p := range append(roles, wrong) {
		p.awaitUp()
	}
	status, _, detail := readiness(t, roles[0])
	require.Equal(t, 503, status)
	require.Contains(t, detail, "mysql, redis partition 0")
	for _, p := range roles[1:] {
		status, named, _ := readiness(t, p)
		require.Equal(t, http.StatusOK, status, "%s waits for named servers", p.command)
		require.Equal(t, []string{"mysql", "redis"}, named)
	}
	evicting.Start()
	s.redis.Start()
	s.sql.Start()
	wrong.awaitEnd()
	require.Equal(t, exitFailed, wrong.cmd.ProcessState.ExitCode(), wrong.tail())
	require.Contains(t, wrong.output(), "maxmemory-policy is \"allkeys-lru\"")
	for _, p := range roles {
		require.Eventually(t, func() bool { _, named, _ := readiness(t, p); return statusOf(p, "/readyz") == 200 && len(named) == 0 },
			upTimeout, pollEvery, p.command)
	}
	c := openCampaign(t, roles[0].url, campaign{Total: 3})
	require.Equal(t, http.StatusCreated, claimOnce(t, roles[0].url, c.ID, "ada", 1, "").status)
	require.Eventually(t, func() bool {
		var rows int
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM claims").Scan(&rows))
		return rows == 1
	}, upTimeout, pollEvery)
	for _, p := range roles {
		p.stop()
	}
}
