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

// TestIdleCampaignLeavesRedisButItsTombstoneAndComesBackExactly: rush, idle, gone, and again, with what users hold, what their keys
// were answered and what is left as if it had never been away.
func TestIdleCampaignLeavesRedisButItsTombstoneAndComesBackExactly(t *testing.T) {
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
			return err == nil && len(keys) == 1 && keys[0] == s.keysOf(c.ID).Evicted // the tombstone
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
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT load_attempts FROM campaigns WHERE id = ?", c.ID).Scan(&attempts))
	require.Equal(t, int64(1), attempts)
}

// TestKeysThatVanishInMidRushComeBackByThemselves: Redis loses a campaign, but not the stream of its claims. It is refused until
// MySQL has all of these, and then sold on, to the last unit.
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

// TestFlushAllInMidRushIsRefusedUntilItIsRepaired: an empty Redis proves nothing, so everybody is refused until someone says
// `dibs reconcile --repair`. What was answered and is not in MySQL is counted, the rest is sold on, and not one too many.
func TestFlushAllInMidRushIsRefusedUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	users := testenv.Pick(1_500, 10_000)
	s := newSystem(t, wishes{apis: 2})
	c := openCampaign(t, s.apis[0].url, campaign{Total: int64(users) * 6 / 10, PerUser: 1})
	rush := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: users, Connections: 50})
	rush.reaches(users * 2 / 10)
	s.consumers[0].kill9() // so that something is lost
	rush.reaches(users * 3 / 10)
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	for _, url := range s.urls() {
		requireRetryable(t, claimOnce(t, url, c.ID, "prober", 1, ""), "unavailable")
	}
	s.consumers[0].restart()
	out := s.repaired(t)
	tally := rush.wait()
	require.Positive(t, tally.Unready)
	lost, lack := s.requireNoneTooMany(c, tally)
	require.Positive(t, lost)
	require.Regexp(t, fmt.Sprintf(`repaired redis: .*, %d claims known to be lost`, lack), out)
	t.Logf("%d answered claims lost, %d places given up", lost, lack)
}

// repaired runs `dibs reconcile --repair` until the books agree, with leave to give claims up, and returns all that it said.
func (s *system) repaired(t *testing.T) (said string) {
	t.Helper()
	eventually(t, drainWithin, "the books can't be repaired", func() bool {
		got := runDibs(t, s.settings, "reconcile", "--repair", "--give-up-claims")
		said += got.stdout + got.stderr
		return got.code == exitOK
	})
	return said
}

// requireNoneTooMany checks a campaign after a loss and a repair, that was wanted to the last unit: it is sold exactly by the
// rows, which each someone was notified of or is in doubt about. It returns how many claims were answered and have no row,
// and how many places are known to
// be lost.
func (s *system) requireNoneTooMany(c campaign, tally crowd.Tally) (lost, lack int64) {
	t := s.t
	t.Helper()
	eventually(t, drainWithin, "MySQL does not get there", func() bool {
		state, err := s.scripts.State(t.Context(), c.ID)
		if err != nil {
			return false
		}
		var synced int64
		err = s.db.QueryRowContext(t.Context(), "SELECT synced_seq, lost_claims FROM campaigns WHERE id = ?", c.ID).Scan(&synced, &lack)
		return err == nil && synced == state.Seq && state.Remaining() == 0
	})
	rows, err := readRows(t.Context(), s.db, c.ID)
	require.NoError(t, err)
	require.Equal(t, c.Total, unitsOf(rows))
	for id := range tally.Claims {
		if _, there := rows[id]; !there {
			lost++
		}
	}
	for id, row := range rows {
		_, told := tally.Claims[id]
		_, doubts := tally.InDoubt[row.user]
		require.True(t, told || doubts, "no one knows of %s %+v", id, row)
	}
	require.Equal(t, exitOK, runDibs(t, s.settings, "reconcile").code)
	require.Equal(t, http.StatusConflict, claimOnce(t, s.apis[0].url, c.ID, "late", 1, "").status)
	return lost, lack
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
