package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
	"dibs/lua"
)

// A campaign is used, idle, evicted and used again. Users'
// units, keys' replies and the rest must be as if it had stayed.
func TestIdleCampaignLeavesRedisAndComesBackExactly(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{apis: 2, settings: map[string]string{"DIBS_IDLE_EVICT": "200ms"}})
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
	for _, before := range tallies.Claims { // the first reply again, from MySQL
		again := claimOnce(t, s.apis[0].url, c.ID, before.UserID, 1, "key-"+before.UserID)
		require.Equal(t, before, again.claim(t), again.body)
		break
	}
	s.syncers[0].stop() // it would evict again during the comparison
	require.Equal(t, "sold_out", claimOnce(t, s.apis[1].url, c.ID, "late", 1, "late").code())
	s.checkBooks(c, tallies, true)
}

func (s *servers) keysOf(id string) lua.CampaignKeys { return s.scripts.KeysOf(id) }

func (s *servers) keysIn(ctx context.Context, id string) (all []string, err error) {
	k := s.keysOf(id)
	for iter := s.rdb.Scan(ctx, 0, k.State+"*", 1000).Iterator(); iter.Next(ctx); err = iter.Err() {
		if iter.Val() != k.State+":answers" { // for watchers; they expire by themselves
			all = append(all, iter.Val())
		}
	}
	return all, err
}
