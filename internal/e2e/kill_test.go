package e2e

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
)

// TestConsumerKilledAtRandomPointsKeepsTheBooksExact kills the only consumer again and again while claims come without end:
// half of the times while it flushes every few milliseconds, half of the times wherever it is, its start included.
// DIBS_TEST_SEED repeats a run's points of time.
func TestConsumerKilledAtRandomPointsKeepsTheBooksExact(t *testing.T) {
	t.Parallel()
	kills := testenv.Pick(8, 200)
	seed := uint64(1)
	if text := os.Getenv("DIBS_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	} else if testenv.Soak() {
		seed = rand.Uint64()
	}
	t.Logf("DIBS_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, seed))

	s := newSystem(t, wishes{settings: map[string]string{"DIBS_FLUSH_SIZE": "20", "DIBS_FLUSH_INTERVAL": "2ms"}})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 100_000_000})
	claims := startRush(t, crowd.Plan{
		BaseURLs: s.urls(), CampaignID: c.ID, Users: 10_000_000, Connections: 4,
		Quantity: func(user int) int64 { return int64(user%3) + 1 },
	})
	consumer := s.consumers[0]
	for i := range kills {
		if i%2 == 0 {
			flushes := flushCount(t, s)
			require.Eventually(t, func() bool { return flushCount(t, s) > flushes }, upTimeout, time.Millisecond, "kill %d", i)
			<-time.After(time.Duration(random.Int64N(int64(30 * time.Millisecond))))
		} else {
			<-time.After(time.Duration(random.Int64N(int64(600 * time.Millisecond))))
		}
		consumer.kill9()
		consumer.start()
	}
	consumer.awaitUp()
	tally := claims.breakOff()
	s.checkBooks(c, tally, false)
	t.Logf("%d kills, %d claims, %d flushes", kills, tally.Accepted, flushCount(t, s))
}

func flushCount(t testing.TB, s *system) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM stock_flushes").Scan(&n))
	return n
}
