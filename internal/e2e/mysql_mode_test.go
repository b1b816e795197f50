package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func inMySQLMode() map[string]string {
	// long, as no claim waits for it
	return map[string]string{"DIBS_DURABILITY": "mysql", "DIBS_FLUSH_INTERVAL": "1s"}
}

// While MySQL is down or stalled, no claim may be granted; the
// same key must get the answer later. The API must not be ready.
func TestMySQLModeWithoutMySQL(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{ownSQL: true, settings: inMySQLMode()})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 100})
	url := s.apis[0].url
	book := merged()
	book1(t, &book, claimOnce(t, url, c.ID, "early", 1, "early"))
	for user, away := range map[string]struct{ begin, end func() }{
		"gone":  {s.sql.Kill, s.sql.Start},
		"hangs": {s.sql.Pause, s.sql.Resume},
	} {
		away.begin()
		start := time.Now()
		for range 2 {
			requireRetryable(t, claimOnce(t, url, c.ID, user, 1, user), "outcome_unknown")
		}
		require.Less(t, time.Since(start), 10*time.Second)
		require.Eventually(t, func() bool { return statusOf(s.apis[0], "/readyz") == http.StatusServiceUnavailable }, upTimeout, pollEvery)
		away.end()
		again := claimUntilAnswered(t, url, c.ID, user, 1, user)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		book1(t, &book, again)
		require.Eventually(t, func() bool { return statusOf(s.apis[0], "/readyz") == http.StatusOK }, upTimeout, pollEvery)
	}
	s.checkBooks(c, book, false)
}

// Otherwise callers can't know what a grant guarantees.
func TestProcessesOfDifferentDurabilitiesWarn(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{})
	settings := map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn}
	first := newProcess(t, "api", settings)
	settings["DIBS_DURABILITY"] = "mysql"
	second := newProcess(t, "api", settings)
	require.Eventually(t, func() bool { return strings.Contains(second.output(), "different durabilities") }, upTimeout, pollEvery)
	got := call(t, http.MethodGet, second.url+"/v1/info", "", nil)
	require.Contains(t, got.body, `"durability":"mysql"`)
	for _, p := range []*process{first, second} {
		p.stop()
	}
}
