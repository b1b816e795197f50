package resolve_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"

	"github.com/stretchr/testify/require"
)

// killedResolvers are processes that resolve claims of one campaign, one after the other, each killed by SIGKILL.
type killedResolvers struct {
	*syncertest.Stack
	ms     *atomic.Int64 // the clock of Redis
	id     string
	plan   resolverPlan
	random *rand.Rand
}

// roundTakes is how far the clock goes from one process to the next. A third of holdTakes: claims of three rounds ago are due.
const (
	roundTakes = 20 * time.Second
	holdTakes  = 3 * roundTakes
)

// newKilledResolvers opens a campaign for about so many rounds, with midnight half way.
func newKilledResolvers(t *testing.T, seed uint64, rounds int) *killedResolvers {
	t.Helper()
	dsn := testenv.Database(t).DSN
	h, ms := clocked(t, syncertest.OpenStore(t, sqlstore.Config{DSN: dsn}))
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(48 * time.Hour)
	ms.Store(midnight.Add(-roundTakes * time.Duration(rounds) / 2).UnixMilli())
	k := &killedResolvers{Stack: h, ms: ms, random: rand.New(rand.NewPCG(seed, 0))}
	k.id = h.Create(int64(20*rounds), func(c *models.Campaign) {
		c.PerUser, c.PerUserPerDay, c.HoldForMs = 12, 6, holdTakes.Milliseconds()
	})
	k.plan = resolverPlan{DSN: dsn, Redis: h.Server.URL(), CampaignID: k.id}
	return k
}

// takeSome makes claims of a few users, whose limits some meet.
func (k *killedResolvers) takeSome(round int) {
	k.T.Helper()
	var reqs []lua.ClaimRequest
	for i := range 12 {
		req := syncertest.Ask(fmt.Sprintf("u-%d-%d", round/6, k.random.IntN(6)), "")
		if req.Quantity = 1 + k.random.Int64N(2); i%2 == 0 {
			req.Key = fmt.Sprintf("key-%d-%d", round, i)
		}
		reqs = append(reqs, req)
	}
	for _, reply := range k.Claim(k.id, reqs...) {
		require.Contains(k.T, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserLimit, models.OutcomeUserDayLimit, models.OutcomeSoldOut}, reply.Outcome)
	}
	k.Sync()
}

// run has one process work on the claims; it is killed at that point.
func (k *killedResolvers) run(step string, visit, delayUs int64) (killed bool) {
	k.T.Helper()
	p := k.plan
	p.NowMs, p.Seed, p.Step, p.Visit, p.DelayUs = k.ms.Add(roundTakes.Milliseconds()), k.random.Uint64(), step, visit, delayUs
	_, killed = syncertest.RunHelper(k.T, p)
	return killed
}

// killAnywhere runs a process that is killed at a random point: at a step on the way of a decision to Redis, or a moment after.
func (k *killedResolvers) killAnywhere() (killed bool) {
	k.T.Helper()
	steps := []string{"committed", "committed", "committed", "campaign read", "campaign read", "applied", stepStart}
	step, delayUs, visit := steps[k.random.IntN(len(steps))], int64(0), 1+k.random.Int64N(6)
	switch {
	case step == stepStart:
		visit, delayUs = 1, 1+k.random.Int64N(60_000)
	case k.random.IntN(2) == 0:
		delayUs = 1 + k.random.Int64N(1500)
	}
	return k.run(step, visit, delayUs)
}

// tooMuchBack reports whether Redis has more back than was released: at no moment may it.
func (k *killedResolvers) tooMuchBack() string {
	k.T.Helper()
	state, err := k.Scripts.State(k.T.Context(), k.id) // first: MySQL decides before Redis hears
	require.NoError(k.T, err)
	var live int64
	require.NoError(k.T, k.DB.Raw("SELECT COALESCE(SUM(quantity), 0) FROM claims WHERE campaign_id = ? AND status IN ?", k.id,
		[]models.ClaimStatus{models.ClaimClaimed, models.ClaimRedeemed}).Scan(&live).Error)
	if state.Taken < live {
		return fmt.Sprintf("%s: %d while %d are live", takenInRedis, state.Taken, live)
	}
	return ""
}

// Processes that redeem, release, expire and relay are killed at random points between what MySQL decides and what Redis gets back; the
// last goes on to the end.
func TestResolver_ProcessesKilledOnTheWayToRedisGiveBackOnce(t *testing.T) {
	t.Parallel()
	rounds, seed := 20, uint64(1)
	if testenv.Soak() {
		rounds, seed = 400, rand.Uint64()
	}
	t.Logf("seed %d", seed)
	k := newKilledResolvers(t, seed, rounds)
	kills := 0
	for round := range rounds {
		k.takeSome(round)
		if k.killAnywhere() {
			kills++
		}
		require.Empty(t, k.tooMuchBack())
	}
	require.Greater(t, kills, rounds/4, "kills miss")
	require.False(t, k.run(stepNever, 0, 0))
	require.Empty(t, k.wrong())
}
