package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
	"dibs/lua"
)

// TestIdleCampaignLeavesRedisAndComesBackExactly: rush, idle, gone, and again, with what users hold, what their keys were answered and
// what is left as if it had never been away.
func TestIdleCampaignLeavesRedisAndComesBackExactly(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{apis: 2, settings: map[string]string{"DIBS_IDLE_EVICT": "200ms"}})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 600, PerUser: 2})
	tallies := merged()
	rushes := testenv.Pick(3, 10)
	for i := range rushes {
		tally := startRush(t, crowd.Plan{
			BaseURLs: s.urls(), CampaignID: c.ID, Users: 600/rushes + 10, Connections: 20, Again: func(user int) bool { return user%5 == 0 },
			UserID: func(user int) string { return fmt.Sprintf("user-%d-%d", i, user) },
		}).wait()
		tallies = merged(tallies, tally)
		eventually(t, upTimeout, "it does not leave Redis", func() bool {
			keys, err := s.keysIn(t.Context(), c.ID)
			return err == nil && len(keys) == 0
		})
		var remaining int64
		eventually(t, upTimeout, "MySQL does not record the eviction, which it does after Redis", func() bool {
			var residency string
			err := s.db.QueryRowContext(t.Context(), "SELECT residency, remaining FROM campaigns WHERE id = ?", c.ID).Scan(&residency, &remaining)
			return err == nil && residency == "evicted"
		})
		require.Equal(t, c.Total-tallies.Units, remaining)
		stock, err := stockOf(t.Context(), s.apis[i%2].url, c.ID)
		require.NoError(t, err)
		require.Equal(t, []int64{tallies.Units, c.Total - tallies.Units, 0}, []int64{stock.Claimed, stock.Remaining, stock.Drift})
	}
	for _, before := range tallies.Claims { // the first answer again, out of MySQL
		again := claimOnce(t, s.apis[0].url, c.ID, before.UserID, 1, "key-"+before.UserID)
		require.Equal(t, before, again.claim(t), again.body)
		break
	}
	s.syncers[0].stop() // it would leave again while the books are compared
	require.Equal(t, "sold_out", claimOnce(t, s.apis[1].url, c.ID, "late", 1, "late").code())
	s.checkBooks(c, tallies, true)
}

// TestAThousandFirstClaimsAtOnceLoadOnce: over two processes, of a campaign that was never in Redis, and all get an answer.
func TestAThousandFirstClaimsAtOnceLoadOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{apis: 2})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 700, PerUser: 1})
	tally := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: 1_000, Connections: 1_000}).wait()
	require.Equal(t, map[string]int{"sold_out": 300}, tally.Refused)
	require.Zero(t, tally.Unknown+tally.Unready)
	s.checkBooks(c, tally, true)
	var attempts int64
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT load_attempts FROM lots WHERE id = ?", c.ID).Scan(&attempts))
	require.Equal(t, int64(1), attempts)
}

// TestKeysThatVanishInMidRushComeBackByThemselves: Redis loses keys of a campaign, but not the stream of its claims. It is loaded again
// once MySQL has all of these, and then sold on, to the last unit.
func TestKeysThatVanishInMidRushComeBackByThemselves(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, w wishes) {
		w.apis = 2
		loseKeysInMidRush(t, newSystem(t, w))
	})
}

func loseKeysInMidRush(t *testing.T, s *system) {
	t.Helper()
	users := testenv.Pick(1_500, 10_000)
	c := openCampaign(t, s.apis[0].url, campaign{Total: int64(users) * 7 / 10, PerUser: 1})
	watched := s.watch(c)
	rush := startRush(t, crowd.Plan{
		BaseURLs: s.urls(), CampaignID: c.ID, Users: users, Connections: 50, Once: func(user int) bool { return user%7 == 0 },
	})
	k := s.keysOf(c.ID)
	for i, keys := range [][]string{{k.State}, {k.State, k.Users, k.Keys}, {k.Users}, {k.Keys}} {
		rush.reaches(users * (i + 1) / 8)
		require.NoError(t, s.rdb.Del(t.Context(), keys...).Err())
	}
	tally := rush.wait()
	s.checkBooks(c, tally, true)
	state, err := s.scripts.State(t.Context(), c.ID)
	require.NoError(t, err)
	require.GreaterOrEqual(t, state.Epoch, int64(5), "loaded once, and again after each loss")
	require.Empty(t, watched())
}

func TestKeysInFindsEveryKeyOfACampaign(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{syncers: -1, consumers: -1})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 5})
	require.Equal(t, http.StatusCreated, claimOnce(t, s.apis[0].url, c.ID, "u", 1, "k").status)
	keys, err := s.keysIn(t.Context(), c.ID)
	require.NoError(t, err)
	k := lua.KeysOf(c.ID, 0)
	require.ElementsMatch(t, []string{k.State, k.Users, k.Keys}, keys)
}
