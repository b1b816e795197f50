package resolve_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	units  int64 // most of a claim

	read string          // up to where the stream was read
	told map[string]bool // events in the stream
	seen map[string]bool // rows of outbox that a process left

	untold, unmarked, elsewhere int // kills after a commit that Redis had not heard of; that it had; others
}

// roundTakes is how far the clock goes from one process to the next. A third of holdTakes: claims of three rounds ago are due.
const (
	roundTakes = 20 * time.Second
	holdTakes  = 3 * roundTakes
)

// newKilledResolvers opens a campaign for about so many rounds, with midnight half way.
func newKilledResolvers(t *testing.T, way string, seed uint64, rounds int) *killedResolvers {
	t.Helper()
	dsn := testenv.Database(t).DSN
	h, ms := clocked(t, syncertest.OpenStore(t, sqlstore.Config{DSN: dsn}))
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(48 * time.Hour)
	ms.Store(midnight.Add(-roundTakes * time.Duration(rounds) / 2).UnixMilli())
	k := &killedResolvers{Stack: h, ms: ms, random: rand.New(rand.NewPCG(seed, 0)), units: 2, read: "-", told: map[string]bool{}, seen: map[string]bool{}}
	k.id = h.Create(int64(20*rounds), func(c *models.Campaign) {
		c.PerUser, c.PerUserPerDay, c.HoldForMs = 12, 6, holdTakes.Milliseconds()
	})
	k.plan = resolverPlan{DSN: dsn, Redis: h.Server.URL(), CampaignID: k.id, Way: way}
	if way != wayOutbox {
		k.units = 1
	}
	return k
}

// takeSome makes claims of a few users, whose limits some meet.
func (k *killedResolvers) takeSome(round int) {
	k.T.Helper()
	var reqs []lua.ClaimRequest
	for i := range 12 {
		req := syncertest.Ask(fmt.Sprintf("u-%d-%d", round/6, k.random.IntN(6)), "")
		if req.Quantity = 1 + k.random.Int64N(k.units); i%2 == 0 {
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
func (k *killedResolvers) killAnywhere() {
	k.T.Helper()
	steps := []string{"committed", "committed", "committed", "campaign read", "campaign read", "applied", stepStart}
	step, delayUs, visit := steps[k.random.IntN(len(steps))], int64(0), 1+k.random.Int64N(6)
	switch {
	case step == stepStart:
		visit, delayUs = 1, 1+k.random.Int64N(60_000)
	case k.random.IntN(2) == 0:
		delayUs = 1 + k.random.Int64N(1500)
	}
	if k.run(step, visit, delayUs) {
		k.sortKill()
	}
}

// sortKill finds out where the last kill hit, by the rows of outbox that it left and by what is in the stream.
func (k *killedResolvers) sortKill() {
	k.T.Helper()
	var rows []string
	require.NoError(k.T, k.DB.Raw("SELECT id FROM outbox").Scan(&rows).Error)
	k.readOn()
	left, heard := 0, 0
	for _, id := range rows {
		if k.seen[id] {
			continue
		}
		k.seen[id] = true
		left++
		if k.told[id] {
			heard++
		}
	}
	switch {
	case left > heard:
		k.untold++
	case heard > 0:
		k.unmarked++
	default:
		k.elsewhere++
	}
}

// readOn learns which events came into the stream.
func (k *killedResolvers) readOn() {
	k.T.Helper()
	entries, err := k.Redis.XRange(k.T.Context(), lua.StreamKey(0), k.read, "+").Result()
	require.NoError(k.T, err)
	for _, entry := range entries {
		k.told[entry.Values["_watermill_message_uuid"].(string)] = true
		k.read = "(" + entry.ID
	}
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

// killedUntil kills processes until so many kills hit between a commit and Redis, lets one go on to the end, and returns what is wrong
// then.
func (k *killedResolvers) killedUntil(kills int) (wrong []string) {
	t := k.T
	t.Helper()
	for round := 0; k.untold < kills; round++ {
		require.Less(t, round, 10*kills, "kills miss: %d untold, %d unmarked, %d elsewhere", k.untold, k.unmarked, k.elsewhere)
		k.takeSome(round)
		k.killAnywhere()
		if line := k.tooMuchBack(); line != "" {
			return []string{line}
		}
	}
	require.False(t, k.run(stepNever, 0, 0))
	t.Logf("%d processes were killed between a commit and Redis, %d between Redis and its mark, %d elsewhere", k.untold, k.unmarked, k.elsewhere)
	return k.wrong()
}

// Processes that redeem, release, expire and relay are killed at random points between what MySQL decides and what Redis gets back.
func TestResolver_ProcessesKilledOnTheWayToRedisGiveBackOnce(t *testing.T) {
	t.Parallel()
	kills, seed := 10, uint64(1)
	if testenv.Soak() {
		kills, seed = 200, rand.Uint64()
	}
	t.Logf("seed %d", seed)
	k := newKilledResolvers(t, wayOutbox, seed, 2*kills)
	require.Empty(t, k.killedUntil(kills))
}

// The controls: the same crashes, and quota that goes straight to Redis.
func TestResolver_ProcessesKilledWithoutTheOutboxAreCaught(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		way, step string
		caught    bool
	}{{wayDirect, stepNever, false}, {wayDirect, "committed", true}, {wayTwice, "told", true}} {
		k := newKilledResolvers(t, c.way, 1, 4)
		for round := range 2 {
			k.takeSome(round)
			require.Equal(t, c.step != stepNever, k.run(c.step, 2, 0))
		}
		require.False(t, k.run(stepNever, 0, 0))
		wrong := k.wrong()
		found := slices.ContainsFunc(wrong, func(line string) bool { return strings.HasPrefix(line, takenInRedis) })
		require.Equal(t, c.caught, found, "%s killed at %s: %q", c.way, c.step, wrong)
	}
}
