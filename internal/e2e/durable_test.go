package e2e

import (
	"testing"
	"time"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
)

// Repeated kill -9 of Redis must lose no answered claim.
func TestFsyncAnswersOutliveRedisKilledInMidRush(t *testing.T) {
	t.Parallel()
	kills, repairs := testenv.Pick(5, 50), 0
	s := newSystem(t, setup{apis: 2, redisConf: append([]string{"aof-load-truncated no"}, durable...), settings: map[string]string{"DIBS_DURABILITY": "fsync"}})
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
	s.checkBooks(c, tally, false)
	t.Logf("%d kills, %d files repaired, %d accepted, %d answers unknown, %d unavailable, %d replayed, %d left in doubt",
		kills, repairs, tally.Accepted, tally.Unknown, tally.Unready, tally.Replayed, len(tally.InDoubt))
}

// answeredSoFar is the latest number of answered users.
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
