package reconcile_test

import (
	"testing"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/shards"

	"github.com/stretchr/testify/require"
)

// MySQL lacks rows in the middle of what lots exchanged: it was restored and got later ones. A load fills the gap.
func TestRestored_AGapInTheRowsOfMovesIsFilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		packets, isDeleted bool // the reserve is deleted in Redis, or fenced
	}{{name: "units, fenced"}, {name: "units, deleted", isDeleted: true}, {name: "packets, fenced", packets: true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSale(t, c.packets)
			s.refill(1, 1)
			s.refill(2, 1)
			sold := s.take(1, 1)
			require.Zero(t, look(s.Stack))
			restore := putBack(s.Stack)
			s.refill(2, 21)
			s.Sync()
			restore()
			s.refill(2, 24) // of which MySQL has the rows
			s.Sync()
			reserve := models.ShardID(s.id, models.ReserveLot)
			if c.isDeleted {
				s.Lose(reserve, syncertest.WholeCampaign)
			} else {
				require.NoError(t, s.Scripts.Fence(t.Context(), reserve, 99))
			}
			require.NoError(t, s.Hydrate(reserve))
			var gaps int
			require.NoError(t, s.DB.Raw("SELECT COUNT(*) FROM stock_moves m WHERE campaign_id = ? AND shard = 65 AND cumulative > units AND NOT EXISTS"+
				" (SELECT 1 FROM stock_moves b WHERE b.campaign_id = m.campaign_id AND b.shard = m.shard AND b.kind = m.kind AND b.peer = m.peer"+
				" AND b.cumulative = m.cumulative - m.units)", s.id).Scan(&gaps).Error)
			require.Zero(t, gaps)
			s.repaired(sold)
			if c.packets {
				var packets int
				require.NoError(t, s.DB.Raw("SELECT COUNT(DISTINCT packet_id) FROM claims WHERE campaign_id = ?", s.id).Scan(&packets).Error)
				require.Equal(t, 40, packets)
			}
		})
	}
}

// MySQL was restored to a time before the total was raised. Redis does not sell more than MySQL says, and the next change finds both agree.
func TestRestored_ARaiseThatMySQLForgotIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newSale(t, false)
	repo := syncertest.NewCampaigns(t, s.DB, s.Scripts)
	raise := func(total int64) {
		t.Helper()
		_, err := repo.Change(t.Context(), s.id, models.Change{Total: &total})
		require.NoError(t, err)
	}
	restore := putBack(s.Stack)
	raise(60)
	restore()
	raise(50)
	_, err := s.mover.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, 50, s.sellOut())
	s.leader()
	require.Empty(t, s.Compare(s.id).Differences)
	raise(52)
	require.Equal(t, 2, s.sellOut())
	require.Empty(t, s.Compare(s.id).Differences)
}

// The reserve forgot that the total was lowered. It sells no unit of those that were taken out.
func TestRestored_ALowerTotalThatRedisForgotIsTakenOutAgain(t *testing.T) {
	t.Parallel()
	s := newSale(t, false)
	repo := syncertest.NewCampaigns(t, s.DB, s.Scripts)
	repo.GatherBy(s.mover)
	k := s.Scripts.KeysOf(models.ShardID(s.id, models.ReserveLot))
	was := s.Redis.HMGet(t.Context(), k.State, "total", "tseq").Val()
	_, err := repo.Change(t.Context(), s.id, models.Change{Total: new(int64(30))})
	require.NoError(t, err)
	require.NoError(t, s.Redis.HSet(t.Context(), k.State, "total", was[0], "tseq", was[1]).Err())
	require.NoError(t, s.Redis.HDel(t.Context(), k.State, "out:0").Err())
	_, err = s.mover.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, 30, s.sellOut())
}

// A campaign that ended long ago has no rows of moves any more. Its books agree all the same.
func TestCompare_ACampaignWhoseMovesArePrunedAgrees(t *testing.T) {
	t.Parallel()
	for _, packets := range []bool{false, true} {
		t.Run(map[bool]string{false: "units", true: "packets"}[packets], func(t *testing.T) {
			t.Parallel()
			s := newSale(t, packets)
			s.refill(1, 6)
			require.Equal(t, 6, s.take(1, 6))
			s.refill(2, 6)
			reserve := s.Campaign(models.ShardID(s.id, models.ReserveLot))
			seen := s.Scripts.Shards(t.Context(), []string{reserve.ID})[0].Out[1]
			_, err := s.Scripts.Debit(t.Context(), &reserve, &lua.Debit{Epoch: 1, Peer: 1, Seen: seen, Units: 1}) // stays in flight
			require.NoError(t, err)
			s.Shut(s.id)
			s.Sync()
			require.Empty(t, s.Compare(s.id).Differences)
			s.Exec("DELETE FROM stock_moves")
			require.Empty(t, s.Compare(s.id).Differences)
			for _, lot := range []int{1, 2, models.ReserveLot} {
				require.NoError(t, s.Scripts.Fence(t.Context(), models.ShardID(s.id, lot), 99))
				require.NoError(t, s.Hydrate(models.ShardID(s.id, lot)))
			}
			require.Empty(t, s.Compare(s.id).Differences)
		})
	}
}

// A comparison finds packets that a shard lost in Redis, and those of which MySQL lacks the way to a shard. A repair restores both.
func TestCompare_KnowsThePacketsOfEachLot(t *testing.T) {
	t.Parallel()
	s := newSale(t, true)
	s.refill(1, 6)
	require.Equal(t, 2, s.take(1, 2))
	s.Sync()
	require.Empty(t, s.Compare(s.id).Differences)
	one := models.ShardID(s.id, 1)
	before := s.InLists(one)
	require.NoError(t, s.Redis.RPop(t.Context(), s.Scripts.KeysOf(one).Packets(s.Campaign(one).Epoch, 0)).Err())
	found := s.Compare(s.id)
	require.Len(t, found.Differences, 1)
	require.Contains(t, found.Differences[0], "shard 1: redis has")
	s.Repair(s.id, reconcile.RepairHow{})
	require.Equal(t, before, s.InLists(one))
	require.Empty(t, s.Compare(s.id).Differences)

	s.Exec("DELETE FROM stock_moves WHERE shard = 1")
	require.NotEmpty(t, s.Compare(s.id).Differences)
}

// The total of a campaign is raised while Redis does not hold its reserve. The books agree: the reserve gets the units with its next load.
func TestCompare_ARaiseThatTheReserveIsToGetAgrees(t *testing.T) {
	t.Parallel()
	s := &sale{Stack: newWitnessed(t)}
	s.id = s.Create(40, func(c *models.Campaign) { c.Shards = 2 })
	s.mover = shards.New(s.DB, s.Scripts, s.Hydrator(), syncertest.Quiet(), nil)
	repo := syncertest.NewCampaigns(t, s.DB, s.Scripts)
	_, err := repo.Change(t.Context(), s.id, models.Change{Total: new(int64(50))})
	require.NoError(t, err)
	require.Empty(t, s.Compare(s.id).Differences)
	require.NoError(t, s.Hydrate(models.ShardID(s.id, models.ReserveLot)))
	require.Empty(t, s.Compare(s.id).Differences)
	require.Equal(t, 50, s.sellOut())
	require.Empty(t, s.Compare(s.id).Differences)
}
