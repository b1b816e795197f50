package e2e

import (
	"io"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
)

// One system gets one fault after another, each under its own load.
func TestFaultsInMidRush(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{apis: 2, consumers: 2, redisConf: durable, ownSQL: true})
	for _, fault := range []struct {
		name   string
		strike func(t *testing.T, s *system, r *rush, users int)
	}{
		{"Redis stops and starts", func(_ *testing.T, s *system, _ *rush, _ int) { s.redis.Stop(); s.redis.Start() }},
		{"Redis is killed", func(_ *testing.T, s *system, _ *rush, _ int) { s.redis.Kill(); s.redis.Start() }},
		{"Redis hangs", func(_ *testing.T, s *system, _ *rush, _ int) {
			s.redis.Pause()
			<-time.After(4 * time.Second) // longer than the API waits
			s.redis.Resume()
		}},
		{"both consumers are killed, one after the other", func(_ *testing.T, s *system, r *rush, users int) {
			s.consumers[0].kill9()
			r.reaches(users * 3 / 10)
			s.consumers[1].kill9()
			r.reaches(users * 5 / 10) // claims go on
			stock, err := stockOf(s.t.Context(), s.apis[0].url, r.plan.CampaignID)
			require.NoError(s.t, err)
			require.Greater(s.t, stock.Backlog, int64(users)/10, "the backlog can be seen: %+v", stock)
			s.consumers[0].restart()
			s.consumers[1].restart()
		}},
		{"a consumer is stopped", stopConsumer},
		{"MySQL hangs", func(t *testing.T, s *system, r *rush, users int) {
			withoutSQL(t, s, r, users, s.sql.Pause, s.sql.Resume)
		}},
		{"MySQL is killed", func(t *testing.T, s *system, r *rush, users int) { withoutSQL(t, s, r, users, s.sql.Kill, s.sql.Start) }},
		{"one of two API processes is killed, the other stopped", func(_ *testing.T, s *system, r *rush, users int) {
			s.apis[0].kill9()
			r.reaches(users * 5 / 10)
			s.apis[0].restart()
			s.apis[1].stop()
			s.apis[1].restart()
		}},
		{"two consumers have one name by mistake", func(_ *testing.T, s *system, _ *rush, _ int) {
			twin := s.launch("consumer", "consumer-0")
			twin.awaitEnd()
			require.Equal(s.t, exitUsage, twin.cmd.ProcessState.ExitCode(), twin.tail())
			require.Contains(s.t, twin.output(), `DIBS_NAME: another process reads as "consumer-0" in group syncer; give each process a name of its own`)
		}},
		{"the syncer is killed", func(_ *testing.T, s *system, _ *rush, _ int) { s.syncers[0].kill9(); s.syncers[0].restart() }},
	} {
		lived := t.Run(fault.name, func(t *testing.T) {
			s := *s // with this subtest's t
			s.t = t
			users := testenv.Pick(800, 10_000)
			c := openCampaign(t, s.apis[0].url, campaign{Total: int64(users) * 7 / 10, PerUser: 3})
			rush := startRush(t, crowd.Plan{
				BaseURLs: s.urls(), CampaignID: c.ID, Users: users, Connections: 50,
				Again: func(user int) bool { return user%10 == 0 },
				Once:  func(user int) bool { return user%7 == 0 },
			})
			rush.reaches(users * 2 / 10)
			fault.strike(t, &s, rush, users)
			tally := rush.wait()
			s.checkBooks(c, tally, true)
			t.Logf("%d accepted in %s, %d answers unknown, %d unavailable, %d replayed, %d left in doubt",
				tally.Accepted, tally.Took.Round(time.Millisecond), tally.Unknown, tally.Unready, tally.Replayed, len(tally.InDoubt))
		})
		if !lived {
			return // later results would be about this failure
		}
	}
}

var flushedOnStop = regexp.MustCompile(`msg="writer closed" events_flushed_at_close=\d+ units_flushed_at_close=\d+ ` +
	`events_not_flushed=0 events_flushed_ever=\d+ units_flushed_ever=\d+`)

func stopConsumer(t *testing.T, s *system, _ *rush, _ int) {
	t.Helper()
	start := time.Now()
	s.consumers[0].stop()
	require.Less(t, time.Since(start), 15*time.Second)
	require.Regexp(t, flushedOnStop, s.consumers[0].output())
	s.consumers[0].restart()
}

// withoutSQL removes MySQL: claims must go on, the backlog must
// be visible, and drain once MySQL is reachable.
func withoutSQL(t *testing.T, s *system, r *rush, users int, away, back func()) {
	t.Helper()
	away()
	gone := time.Now()
	r.reaches(users * 5 / 10)
	require.Eventually(t, func() bool {
		return metric(t, s.consumers[0].url, "dibs_writer_oldest_unsynced_seconds")+
			metric(t, s.consumers[1].url, "dibs_writer_oldest_unsynced_seconds") > 0.5
	}, upTimeout, pollEvery, "the metrics show how old the oldest unsynced claim is")
	<-time.After(time.Until(gone.Add(time.Duration(testenv.Pick(2, 20)) * time.Second)))
	back()
}

// metric reads a metric without labels; 0 if missing.
func metric(t testing.TB, url, name string) float64 {
	t.Helper()
	res, err := client.Get(url + "/metrics")
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	require.NoError(t, err, "%s %s", name, found[1])
	return value
}
