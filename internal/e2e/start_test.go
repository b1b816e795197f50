package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// statusOf requests a path of a process; 0 is no reply.
func statusOf(p *process, path string) int {
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	res, err := client.Get(p.url + path)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// A Redis that answers PING but refuses claims must not count as
// ready. A stalled one must be reported within 2 s.
func TestReadyMeansThatRedisTakesWrites(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{})
	api := newProcess(t, "api", map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn})
	require.Contains(t, api.output(), "appendonly no", "what a Redis of tests is not good for is said")
	rdb := s.redis.Client()
	for _, step := range []struct {
		maxmemory string
		want      int
	}{{"1", 503}, {"0", 200}} {
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", step.maxmemory).Err())
		require.Eventually(t, func() bool { return statusOf(api, "/readyz") == step.want }, upTimeout, pollEvery)
		require.Equal(t, 200, statusOf(api, "/healthz"))
	}
	s.redis.Pause()
	defer s.redis.Resume()
	begun := time.Now()
	require.Eventually(t, func() bool { return statusOf(api, "/readyz") == 503 }, upTimeout, time.Millisecond)
	require.Less(t, time.Since(begun), 4*time.Second, "two probes, on a busy machine")
	s.redis.Resume()
	require.Eventually(t, func() bool { return statusOf(api, "/readyz") == 200 }, upTimeout, pollEvery)
	api.stop()
}

// In a failover a server takes no writes for a while. Processes
// starting then must go on once it does.
func TestRolesStartBesideAReadOnlyMySQL(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{ownSQL: true})
	for _, statement := range []string{"CREATE USER dibs@'%'", "GRANT ALL ON dibs.* TO dibs@'%'", "SET GLOBAL read_only = 1"} {
		_, err := s.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	sql, err := mysql.ParseDSN(s.dsn)
	require.NoError(t, err)
	sql.User = "dibs" // root may write in any case
	settings := map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": sql.FormatDSN()}
	whole := &system{servers: s, t: t}
	var all []*process
	for _, role := range []string{"consumer", "syncer", "finance", "api"} {
		all = append(all, newProcess(t, role, settings))
	}
	api := all[3]
	writable := func(yes bool) {
		_, err := s.db.ExecContext(t.Context(), fmt.Sprintf("SET GLOBAL read_only = %t", !yes))
		require.NoError(t, err)
	}
	writable(true) // nothing is recorded yet: they waited for writes
	var c campaign
	eventually(t, upTimeout, "no campaign can be made", func() bool {
		c = campaign{ID: "late", Kind: "coupon", Total: 100}
		return call(t, http.MethodPost, api.url+"/v1/campaigns", "", c).status == http.StatusCreated
	})
	require.Equal(t, http.StatusCreated, claimUntilAnswered(t, api.url, c.ID, "ada", 1, "").status)
	whole.awaitSynced(c.ID, 1)
	writable(false)
	for _, p := range all {
		p.stop()
		p.restart()
	}
	require.Equal(t, http.StatusCreated, claimUntilAnswered(t, api.url, c.ID, "bob", 1, "").status)
	writable(true)
	whole.awaitSynced(c.ID, 2)
}
