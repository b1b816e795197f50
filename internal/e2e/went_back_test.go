package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
)

// seenByAll is the promise: so long after Redis is back from an older snapshot someone has seen it. A busy machine gets another second.
const seenByAll = 3 * time.Second

// TestAnOlderSnapshotGivesNotOneMoreYes: Redis goes back to an older snapshot, and one of two API processes has not looked since. Whoever
// asks first, after the first refusal there is not one more yes through any process, and that comes within the promised time. What was lost
// is counted and told.
func TestAnOlderSnapshotGivesNotOneMoreYes(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"asked first is who saw the tail": 0, "asked first is who did not": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, wishes{apis: 2, settings: map[string]string{"DIBS_STREAM_KEEP": "1h"}}) // what is trimmed cannot be counted
			c := openCampaign(t, s.apis[0].url, campaign{Total: 100_000})
			for _, api := range s.apis {
				require.Equal(t, http.StatusCreated, claimOnce(t, api.url, c.ID, "early", 1, "").status)
			}
			require.NoError(t, s.rdb.Save(t.Context()).Err())
			tail := startRush(t, crowd.Plan{BaseURLs: s.urls()[:1], CampaignID: c.ID, Users: 200, Connections: 4}).wait()
			require.Equal(t, 200, tail.Accepted)
			require.Eventually(t, func() bool { return unread(t, s) == 0 }, upTimeout, pollEvery)
			s.awaitWatched()
			require.NoError(t, s.rdb.ConfigSet(t.Context(), "save", "").Err())
			s.redis.Kill()
			s.redis.Start()

			back, yeses := time.Now(), 0
			ask := func(api, n int) string {
				got := claimOnce(t, s.apis[api].url, c.ID, fmt.Sprint("late-", api, "-", n), 1, "")
				if got.status == http.StatusCreated {
					return ""
				}
				return got.code()
			}
			code := ""
			for n := 0; code != "unavailable"; n++ {
				require.Less(t, time.Since(back), seenByAll, "no one has seen it")
				if code = ask(first, n); code == "" {
					yeses++
				}
			}
			seen := time.Since(back)
			for n := 0; time.Since(back) < seen+2*time.Second; n++ {
				require.Equal(t, "unavailable", settled(func() string { return ask(n%2, 1000+n) }))
			}
			if first == 0 {
				require.Zero(t, yeses, "it knew at once")
			}
			told := regexp.MustCompile(`lost_entries=(\d+)`)
			eventually(t, seenByAll, "no one says what was lost", func() bool { return told.MatchString(s.syncers[0].output() + s.apis[0].output() + s.apis[1].output()) })
			lost, err := strconv.Atoi(told.FindStringSubmatch(s.syncers[0].output() + s.apis[0].output() + s.apis[1].output())[1])
			require.NoError(t, err)
			require.Equal(t, 200, lost)
			got := runDibs(t, s.settings, "reconcile", "--campaign", c.ID)
			require.Equal(t, exitDrift, got.code, got.stdout)
			require.Regexp(t, `redis was rolled back: (.*it lost 200 entries of the stream|it holds \d+ claims, 202 are known)`, got.stdout)
			t.Logf("seen %s after Redis was back, %d yeses until then", seen.Round(time.Millisecond), yeses)
		})
	}
}

// settled asks again while the outcome is unknown: a process' connections may be those of the Redis that was killed.
func settled(ask func() string) (code string) {
	for code == "" || code == "outcome_unknown" {
		code = ask()
	}
	return code
}

// awaitWatched waits until MySQL has recorded how far the claim stream is.
func (s *system) awaitWatched() {
	s.t.Helper()
	info, err := s.rdb.XInfoStream(s.t.Context(), "dibs:{p0}:claims").Result()
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		var tip string
		return s.db.QueryRowContext(s.t.Context(), "SELECT tip FROM streams").Scan(&tip) == nil && tip == info.LastGeneratedID
	}, upTimeout, pollEvery)
}
