package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
	"dibs/lua"
)

// lostOf counts the accepted claims that have neither a row nor an event that could become one. The events are read first: one that is
// trimmed in between has its row by then.
func lostOf(t testing.TB, s *system, c campaign, tally crowd.Tally) (lost int) {
	t.Helper()
	waiting := newReader()
	entries, err := s.rdb.XRange(t.Context(), lua.StreamKey(lua.PartitionOf(c.ID, s.partitions)), "-", "+").Result()
	require.NoError(t, err)
	for _, entry := range entries {
		payload, _ := entry.Values["payload"].(string)
		waiting.take(map[string]string{}, entry.ID, []byte(payload))
	}
	rows, err := readRows(t.Context(), s.db, c.ID)
	require.NoError(t, err)
	for id := range tally.Claims {
		_, booked := rows[id]
		_, comes := waiting.events[id]
		if !booked && !comes {
			lost++
		}
	}
	return lost
}

// TestFsyncAnswersOutliveRedisKilledInMidRush: kill -9 of Redis, again and again, loses none of the answered claims.
func TestFsyncAnswersOutliveRedisKilledInMidRush(t *testing.T) {
	t.Parallel()
	kills, repairs := testenv.Pick(5, 50), 0
	s := newSystem(t, wishes{apis: 2, redisConf: append([]string{"aof-load-truncated no"}, durable...), settings: map[string]string{"DIBS_DURABILITY": "fsync"}})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 100_000_000})
	claims := startRush(t, crowd.Plan{
		BaseURLs: s.urls(), CampaignID: c.ID, Users: 10_000_000, Connections: 50,
		Quantity: func(user int) int64 { return int64(user%3) + 1 },
	})
	for range kills {
		claims.reaches(answeredSoFar(claims) + 300)
		s.redis.Kill()
		repairs += s.redis.StartRepaired()
	}
	claims.reaches(answeredSoFar(claims) + 300)
	tally := claims.breakOff()
	require.Zero(t, lostOf(t, s, c, tally))
	s.checkBooks(c, tally, false)
	t.Logf("%d kills, %d files repaired, %d accepted, %d answers unknown, %d unavailable, %d replayed, %d left in doubt",
		kills, repairs, tally.Accepted, tally.Unknown, tally.Unready, tally.Replayed, len(tally.InDoubt))
}

// answeredSoFar is the number of users answered, newest.
func answeredSoFar(r *rush) int {
	select {
	case n := <-r.progress:
		return n
	case <-r.done:
		return 0
	case <-time.After(upTimeout):
		return 0
	}
}

// TestFastAnswersAreLostWithRedis is the control of the test above: a Redis that keeps nothing is killed before anything was booked. The
// count finds every answered claim lost. That none of them is sold again see TestRedisLosesDataInMidRush.
func TestFastAnswersAreLostWithRedis(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{apis: 2, consumers: -1, syncers: -1})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 500})
	claims := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: 10_000, Connections: 20})
	claims.reaches(100)
	s.redis.Kill()
	tally := claims.breakOff()
	s.redis.Start()
	require.NotZero(t, tally.Accepted)
	require.Equal(t, tally.Accepted, lostOf(t, s, c, tally))
	t.Logf("%d of %d answered claims lost", lostOf(t, s, c, tally), tally.Accepted)
}

func TestDurabilityThatCantBeKeptIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	s := newServers(t, wishes{})
	for _, row := range []struct {
		durability, args string
		embedded         bool
		words            []string
	}{
		{durability: "fsync", args: "api", words: []string{"appendonly yes"}},
		{durability: "fsync", args: "serve", words: []string{"appendonly yes"}},
		{durability: "fsync", args: "demo", words: []string{"appendonly yes"}},
		{durability: "replica:1", args: "api", words: []string{"replica:1", "mysql"}},
		{durability: "fsync", args: "serve", embedded: true, words: []string{"embedded"}},
		{durability: "slow", args: "api", words: []string{"slow"}},
	} {
		settings := map[string]string{"DIBS_DURABILITY": row.durability, "DIBS_HTTP_ADDR": "127.0.0.1:0"}
		if !row.embedded {
			settings["DIBS_REDIS_URL"], settings["DIBS_MYSQL_DSN"] = s.redisURL, s.dsn
		}
		requireRefusal(t, runDibs(t, settings, row.args), exitUsage, append(row.words, "DIBS_DURABILITY")...)
	}
}
