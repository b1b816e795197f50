package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
)

func inMySQLMode() map[string]string {
	// long, as no claim waits for it
	return map[string]string{"DIBS_DURABILITY": "mysql", "DIBS_FLUSH_INTERVAL": "1s"}
}

// A Redis without persistence is emptied or killed repeatedly
// under load. Each grant must have its row, and no unit may be
// sold twice, up to the last one.
func TestMySQLAnswersOutliveAnyRedis(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]func(t *testing.T, s *system){
		"flushed": func(t *testing.T, s *system) {
			t.Helper()
			require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
		},
		"killed": func(_ *testing.T, s *system) {
			s.redis.Kill()
			s.redis.Start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, setup{apis: 2, settings: inMySQLMode()})
			const total = 3_000
			c := openCampaign(t, s.apis[0].url, campaign{Total: total})
			var all []crowd.Tally
			for n := range testenv.Pick(3, 20) {
				rush := startRush(t, crowd.Plan{
					BaseURLs: s.urls(), CampaignID: c.ID, Users: 10_000_000, Connections: 20, UserID: named(string(rune('a' + n))),
				})
				rush.reaches(100)
				loses(t, s)
				all = append(all, rush.breakOff())
			}
			tally := merged(all...)
			s.requireRows(c, tally)
			require.NotZero(t, tally.Accepted)
			late := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: 2 * total, Connections: 20, UserID: named("late")}).wait()
			units := s.requireRows(c, late).Live
			require.LessOrEqual(t, units, int64(total))
			t.Logf("%d answered, %d of %d units in rows", tally.Accepted+late.Accepted, units, total)
		})
	}
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
