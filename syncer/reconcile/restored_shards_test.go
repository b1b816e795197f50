package reconcile_test

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"
	"dibs/syncer/shards"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
)

// In these tests MySQL is restored to a time before a move of units that Redis has taken, in a campaign of 40 units in two shards. Before
// it was repaired, and afterwards, no unit is sold twice. After it none is left over.

// tryRefill has a shard ask for units, which may fail.
func (s *sale) tryRefill(shard int, units int64) {
	s.T.Helper()
	_, err := s.mover.Refill(s.T.Context(), s.id, models.Need{Shard: shard, Units: units})
	if err != nil && !errors.Is(err, campaigns.ErrLost) {
		require.ErrorIs(s.T, err, shards.ErrBlocked)
	}
}

// dumped makes a sale of packets that both shards have some of, of which one is sold, and dumps MySQL.
func dumped(t *testing.T) (s *sale, sold int, restore func()) {
	t.Helper()
	s = newSale(t, true)
	s.refill(1, 3)
	s.refill(2, 3)
	sold = s.take(1, 1)
	require.Zero(t, look(s.Stack))
	return s, sold, putBack(s.Stack)
}

// leader does what the syncer that leads does in a round.
func (s *sale) leader() {
	s.T.Helper()
	look(s.Stack)
	if _, err := s.mover.Check(s.T.Context()); err != nil {
		require.ErrorIs(s.T, err, shards.ErrBlocked)
	}
	s.Sync()
	refill(s.Stack)
}

// repaired has the leader repair the campaign, which needs no one's help, and sells what is left.
func (s *sale) repaired(sold int) {
	s.T.Helper()
	for range 3 {
		s.leader()
		_, err := s.reconciler.Reconcile(s.T.Context())
		require.NoError(s.T, err)
		require.NoError(s.T, s.maintainer.Maintain(s.T.Context(), true))
	}
	require.Empty(s.T, s.Compare(s.id).Differences)
	require.Equal(s.T, 40, sold+s.sellOut())
	require.Empty(s.T, s.Compare(s.id).Differences)
	require.Empty(s.T, syncertest.ParkedIDs(s.T, s.DB))
}

// The shard that asks next is another one than the shard whose grant is forgotten, and no one has noticed the restore.
func TestRestored_TheReserveOfAnOldDumpIsNotGranted(t *testing.T) {
	t.Parallel()
	s := newSale(t, false)
	s.refill(1, 1)
	s.refill(2, 1)
	restore := putBack(s.Stack)
	s.refill(2, 30)
	sold := s.take(2, 30)
	restore()
	s.tryRefill(1, 30)
	sold += s.take(1, 50)
	require.LessOrEqual(t, sold, 40)
	s.repaired(sold)
}

// No flush is lost, so the record of flushes in Redis does not tell of the restore. Redis has the units, and goes on; the comparison
// notices that MySQL lacks rows, and the repair brings them back.
func TestRestored_ALostGrantAloneDoesNoHarm(t *testing.T) {
	t.Parallel()
	s := newSale(t, false)
	s.refill(1, 1)
	s.refill(2, 1)
	sold := s.take(1, 1)
	require.Zero(t, look(s.Stack))
	restore := putBack(s.Stack)
	s.refill(2, 30)
	s.Sync()
	restore()
	require.Zero(t, look(s.Stack), "no flush is lost")
	require.NotEmpty(t, s.Compare(s.id).Differences)
	for range 6 {
		_, err := s.mover.Refill(t.Context(), s.id, models.Need{Shard: 1, Units: 30, Pace: 30, Ahead: true})
		require.NoError(t, err)
		sold += s.take(1, 50)
	}
	sold += s.take(2, 50)
	require.LessOrEqual(t, sold, 40)
	done, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{})
	require.NoError(t, err)
	require.Empty(t, done.Left.Differences)
	s.repaired(sold)
}

// newSaleOfTwo is newSale with two partitions: shard 1 and the reserve are in one, shard 2 is in the other.
func newSaleOfTwo(t *testing.T) *sale {
	t.Helper()
	h := syncertest.NewStack(t)
	rdb, err := lua.Connect(h.Server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	h.Scripts, err = lua.New(rdb, lua.Options{Partitions: 2})
	require.NoError(t, err)
	h.Group()
	h.Writer = syncertest.StartWriter(t, writer.Config{DB: h.DB, FlushLog: residency.NewFlushLog(h.Hydrator())})
	s := &sale{Stack: h}
	s.id = s.Create(40, func(c *models.Campaign) { c.Shards = 2 })
	s.mover = shards.New(s.DB, s.Scripts, s.Hydrator(), syncertest.Quiet(), nil)
	s.reconciler, s.maintainer = s.Leader()
	require.NoError(t, s.Hydrate(models.ShardID(s.id, models.ReserveLot)))
	return s
}

// The restore is noticed in the partition of one shard. The shard in the other partition gets no units until that one is repaired.
func TestRestored_ShardsOfAllPartitionsAreStopped(t *testing.T) {
	t.Parallel()
	s := newSaleOfTwo(t)
	require.NotEqual(t, s.Campaign(models.ShardID(s.id, 1)).Partition, s.Campaign(models.ShardID(s.id, 2)).Partition)
	s.refill(1, 1)
	s.refill(2, 1)
	require.Zero(t, look(s.Stack))
	restore := putBack(s.Stack)
	s.refill(2, 30)
	sold := s.take(2, 30)
	restore()
	require.Equal(t, 1, look(s.Stack), "one of two partitions")
	s.tryRefill(1, 30)
	sold += s.take(1, 50)
	require.LessOrEqual(t, sold, 40)
	s.repaired(sold)
}

// Redis evicted the reserve and the shard that it had granted units to, and MySQL was restored to a time before. No claim was lost in the
// partition of the reserve. A load of it is refused, by its tombstone.
func TestRestored_AReserveThatWasEvictedDoesNotLoadBehindItsTombstone(t *testing.T) {
	t.Parallel()
	for _, isTold := range []bool{false, true} {
		t.Run(fmt.Sprintf("mysql was told of the eviction: %v", isTold), func(t *testing.T) {
			t.Parallel()
			s := newSaleOfTwo(t)
			s.refill(1, 1)
			s.refill(2, 1)
			require.Zero(t, look(s.Stack))
			restore := putBack(s.Stack)
			s.refill(2, 30)
			sold := s.take(2, 30)
			for _, lot := range []int{2, models.ReserveLot} {
				s.evict(lot)
			}
			restore()
			if isTold { // as if another dump had been restored
				s.Exec("UPDATE lots SET residency = ? WHERE campaign_id = ? AND shard IN (2, 65)", models.ResidencyEvicted, s.id)
			}
			s.tryRefill(1, 30)
			sold += s.take(1, 50)
			require.LessOrEqual(t, sold, 40)
			require.Equal(t, models.ResidencyLost, s.Residency(models.ShardID(s.id, models.ReserveLot)))
		})
	}
}

// A packet of a forgotten grant is given to one user only.
func TestRestored_APacketOfAForgottenGrantHasOneOwner(t *testing.T) {
	t.Parallel()
	s, sold, restore := dumped(t)
	s.refill(2, 20)
	restore()
	s.tryRefill(1, 20)
	sold += s.take(1, 50) + s.take(2, 50)
	require.LessOrEqual(t, sold, 40)
	s.ownedOnce(sold)
}

// MySQL, which was restored, got later rows of the reserve before it was compared with Redis: the rows between are missing, and name
// packets. A load of
// the giver deals none of them again.
func TestRestored_PacketsOfRowsBetweenOthersHaveOneOwner(t *testing.T) {
	t.Parallel()
	s, sold, restore := dumped(t)
	s.refill(2, 10)
	s.Sync()
	restore()
	s.refill(2, 20)
	s.Sync()
	reserve := models.ShardID(s.id, models.ReserveLot)
	var first, last int64
	require.NoError(t, s.DB.Raw("SELECT SUM(units), MAX(cumulative) FROM stock_moves WHERE campaign_id = ? AND shard = 65 AND peer = 2", s.id).
		Row().Scan(&first, &last))
	require.Less(t, first, last, "rows between others are missing")
	require.NoError(t, s.Scripts.Fence(t.Context(), reserve, 99))
	s.leader()
	require.NoError(t, s.Hydrate(reserve))
	for shard := 1; shard <= 2; shard++ {
		sold += s.take(shard, 50)
	}
	require.LessOrEqual(t, sold, 40)
	s.ownedOnce(sold)
}

// evict has Redis evict a lot.
func (s *sale) evict(lot int) {
	s.T.Helper()
	c := s.Campaign(models.ShardID(s.id, lot))
	evicted, err := s.Scripts.Evict(s.T.Context(), &c, 0)
	require.NoError(s.T, err)
	require.True(s.T, evicted, c.ID)
}

// owners are how many packets were given to users, and how often one was.
func (s *sale) owners() (packets, owned int) {
	s.T.Helper()
	require.NoError(s.T, s.DB.Raw("SELECT COUNT(DISTINCT packet_id), COUNT(*) FROM claims WHERE campaign_id = ?", s.id).Row().Scan(&packets, &owned))
	return packets, owned
}

// ownedOnce sells what is left of 40 packets, and finds an owner for each.
func (s *sale) ownedOnce(sold int) {
	s.T.Helper()
	s.repaired(sold)
	packets, owned := s.owners()
	require.Equal(s.T, []int{40, 40}, []int{packets, owned})
}

// Redis evicted the reserve, and MySQL was restored to a time before packets went: neither has their names any more. The shard that they
// went to has them, and the claims of some. In one case MySQL has a debit of the same packets, too, which Redis had lost before.
func TestRestored_PacketsWhoseNamesAreLostAreWhereTheyWent(t *testing.T) {
	t.Parallel()
	for name, isDebitedTwice := range map[string]bool{"": false, "and an older debit has them": true} {
		t.Run("names"+name, func(t *testing.T) {
			t.Parallel()
			s, sold, restore := dumped(t)
			s.refill(2, 20)
			sold += s.take(2, 10)
			var row models.Event
			var ids string
			require.NoError(t, s.DB.Raw("SELECT tseq, units, packets FROM stock_moves WHERE campaign_id = ? AND shard = 65 AND peer = 2 ORDER BY tseq DESC LIMIT 1",
				s.id).Row().Scan(&row.TSeq, &row.Quantity, &ids))
			s.evict(models.ReserveLot)
			restore()
			if isDebitedTwice {
				s.Exec("INSERT INTO stock_moves (campaign_id, shard, tseq, kind, peer, units, cumulative, packets, epoch, event_id, at)"+
					" SELECT campaign_id, 65, ?, kind, 1, ?, ? + cumulative, ?, epoch, 'older', at FROM stock_moves WHERE campaign_id = ? AND shard = 65 AND peer = 1",
					row.TSeq, row.Quantity, row.Quantity, ids, s.id)
			}
			s.leader()
			done, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{})
			require.NoError(t, err)
			require.Empty(t, done.Left.Differences, fmt.Sprint(done.Steps))
			for shard := 1; shard <= 2; shard++ {
				sold += s.take(shard, 50)
			}
			require.LessOrEqual(t, sold, 40)
			s.ownedOnce(sold)
		})
	}
}

// The same after a shard gave packets back, and the reserve gave them to another: what a shard passed on came to it, too.
func TestRestored_PacketsThatWereRecalledAreNotGuessed(t *testing.T) {
	t.Parallel()
	s, sold, restore := dumped(t)
	sold += s.recall()
	s.evict(models.ReserveLot)
	restore()
	s.leader()
	done, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{})
	require.NoError(t, err)
	require.Empty(t, done.Left.Differences, fmt.Sprint(done.Steps))
	s.ownedOnce(sold)
}

// recall sells all that the reserve has in shard 2, and then some of what shard 1 has.
func (s *sale) recall() (sold int) {
	s.T.Helper()
	s.refill(2, 30)
	sold = s.take(2, 50)
	s.refill(2, 1)
	sold += s.take(2, 2)
	require.Positive(s.T, s.Scripts.Shards(s.T.Context(), []string{models.ShardID(s.id, 1)})[0].Out[models.ReserveLot], "a recall")
	return sold
}

// Redis evicted a shard that had got packets, of which it had sold some, given others back and got them again, and MySQL was restored to a
// time before. The lots that gave it packets do so once, the reserve too if it was evicted since.
func TestRestored_PacketsOfAShardThatWasEvictedComeOnce(t *testing.T) {
	t.Parallel()
	for _, variant := range []struct {
		name                                       string
		isRecalled, isGivenAgain, isReserveEvicted bool
	}{
		{name: "sold"},
		{name: "recalled", isRecalled: true},
		{name: "given again", isRecalled: true, isGivenAgain: true},
		{name: "sold, and the reserve is evicted", isReserveEvicted: true},
		{name: "recalled, and the reserve is evicted", isRecalled: true, isReserveEvicted: true},
		{name: "given again, and the reserve is evicted", isRecalled: true, isGivenAgain: true, isReserveEvicted: true},
	} {
		for _, isGivenUp := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, gives up: %v", variant.name, isGivenUp), func(t *testing.T) {
				t.Parallel()
				s, sold, restore := dumped(t)
				s.refill(2, 20)
				sold += s.take(2, 10)
				if variant.isRecalled {
					s.refill(1, 25)
					sold += s.take(1, 22)
					require.Positive(t, s.Scripts.Shards(t.Context(), []string{models.ShardID(s.id, 2)})[0].Out[models.ReserveLot], "a recall")
				}
				if variant.isGivenAgain {
					s.refill(2, 12)
				}
				s.evict(2)
				restore()
				if variant.isReserveEvicted {
					for range 3 {
						s.leader()
						require.NoError(t, s.maintainer.Maintain(t.Context(), true))
					}
					s.evict(models.ReserveLot)
				}
				s.leader()
				done, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{GiveUpClaims: isGivenUp})
				require.NoError(t, err)
				require.Empty(t, done.Left.Differences, fmt.Sprint(done.Steps))
				s.ownedOnce(sold)
			})
		}
	}
}

// Redis lost more lots, and MySQL was restored to a time before packets went from shard to shard through the reserve. Nothing is loaded that
// contradicts what others have, but with --give-up-claims, and then no packet that a user has.
func TestRestored_PacketsOfSeveralLotsThatAreLostHaveOneOwner(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string][]int{
		"shards": {1, 2}, "all lots": {1, 2, models.ReserveLot},
		"a shard and the reserve": {1, models.ReserveLot}, "the other shard and the reserve": {2, models.ReserveLot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, sold, restore := dumped(t)
			s.refill(2, 20)
			sold += s.take(2, 10)
			s.refill(1, 15)
			sold += s.take(1, 17)
			s.refill(2, 6)
			sold += s.take(2, 2)
			for _, lot := range lost {
				s.Lose(models.ShardID(s.id, lot), syncertest.WholeCampaign)
			}
			restore()
			s.leader()
			_, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{})
			if err != nil {
				require.ErrorContains(t, err, "--give-up-claims")
			}
			sold += s.sellSome()
			done, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{GiveUpClaims: true})
			require.NoError(t, err)
			require.Empty(t, done.Left.Differences, fmt.Sprint(done.Steps))
			require.Empty(t, done.GivenUp)
			s.ownedOnce(sold)
		})
	}
}

// The reserve got packets back from two shards that Redis lost, and MySQL was restored to a time before: no evidence tells which from which.
// The reserve has them, so each shard has the others that its rows name. The reserve may give away what a shard was credited last and no
// lot has.
func TestRestored_PacketsOfWhichNoEvidenceTellsWhoGaveThemAreNotLost(t *testing.T) {
	t.Parallel()
	s := &sale{Stack: newWitnessed(t)}
	s.id = s.Create(0, func(c *models.Campaign) {
		c.Kind, c.Currency, c.SenderID, c.Shards = models.KindPacket, "CNY", "boss", 2
	})
	released := time.Now().Add(300 * time.Millisecond)
	s.AddPackets(s.id, syncertest.ReleasedAt(syncertest.ListOf("later", 10), &released))
	s.mover = shards.New(s.DB, s.Scripts, s.Hydrator(), syncertest.Quiet(), nil)
	s.reconciler, s.maintainer = s.Leader()
	require.NoError(t, s.Hydrate(models.ShardID(s.id, models.ReserveLot)))
	require.Eventually(t, func() bool { return time.Now().After(released.Add(100 * time.Millisecond)) }, waitMost, waitPoll)
	s.refill(1, 5)
	s.refill(2, 5)
	s.AddPackets(s.id, syncertest.ListOf("p", 30)) // which shards give away before the others
	sold := s.take(1, 1)
	require.Zero(t, look(s.Stack))
	restore := putBack(s.Stack)
	s.refill(1, 12)
	s.refill(2, 12)
	sold += s.take(1, 2) + s.take(2, 2)
	for shard := 1; shard <= 2; shard++ { // a recall
		id := models.ShardID(s.id, shard)
		views := s.Scripts.Shards(t.Context(), []string{id, models.ShardID(s.id, models.ReserveLot)})
		v := views[0]
		c := s.Campaign(id)
		_, err := s.Scripts.Debit(t.Context(), &c, &lua.Debit{Epoch: v.Epoch, Peer: models.ReserveLot, Units: 3})
		require.NoError(t, err)
		s.refill(models.ReserveLot, views[1].Free()+1) // which completes it
		s.Lose(id, syncertest.WholeCampaign)
	}
	s.Sync()
	restore()
	for range 2 {
		look(s.Stack)
		_, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{})
		require.ErrorContains(t, err, "--give-up-claims")
		require.Zero(t, s.sellSome())
	}
	done, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{GiveUpClaims: true})
	require.NoError(t, err)
	require.Empty(t, done.Left.Differences, fmt.Sprint(done.Steps))
	require.Empty(t, done.GivenUp)
	for range 2 {
		s.leader()
		sold += s.sellOut()
	}
	require.Equal(t, 40, sold)
	packets, owned := s.owners()
	require.Equal(t, []int{sold, sold}, []int{packets, owned})
	require.Empty(t, syncertest.ParkedIDs(t, s.DB))
	require.Empty(t, s.Compare(s.id).Differences)
	for _, lot := range []int{1, models.ReserveLot} { // a load later brings none of them
		require.NoError(t, s.Scripts.Fence(t.Context(), models.ShardID(s.id, lot), 99))
		require.NoError(t, s.Hydrate(models.ShardID(s.id, lot)))
	}
	require.Zero(t, s.sellOut())
	require.Empty(t, s.Compare(s.id).Differences)
}

// MySQL was restored to a time before packets were added, some of which users have and shards gave each other. Lots that count them wait
// until their sender adds them again; then each has one owner.
func TestRestored_PacketsThatWereAddedSinceAreAddedAgain(t *testing.T) {
	t.Parallel()
	for name, evicted := range map[string][]int{"held": nil, "a shard is evicted": {2}, "the reserve is evicted": {models.ReserveLot}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, sold, restore := dumped(t)
			s.AddPackets(s.id, syncertest.ListOf("q", 20))
			s.refill(2, 45)
			sold += s.take(2, 40)
			s.refill(1, 12)
			sold += s.take(1, 5)
			for _, lot := range evicted {
				s.evict(lot)
			}
			restore()
			s.Exec("DELETE FROM packet_batches WHERE first_position > 40")
			for range 2 {
				look(s.Stack)
				_, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{})
				require.ErrorContains(t, err, "add it again as it was")
			}
			s.AddPackets(s.id, syncertest.ListOf("q", 20))
			done, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{})
			require.NoError(t, err)
			require.Empty(t, done.Left.Differences, fmt.Sprint(done.Steps))
			s.leader()
			sold += s.sellOut()
			packets, owned := s.owners()
			require.Equal(t, []int{60, 60, 60}, []int{sold, packets, owned})
			require.Empty(t, s.Compare(s.id).Differences)
			require.Empty(t, syncertest.ParkedIDs(t, s.DB))
		})
	}
}

// The other shards of a campaign of packets go on while a lost one is repaired: where their packets are is read again until they rest.
func TestRestored_PacketsThatMoveDuringARepairAreReadAgain(t *testing.T) {
	t.Parallel()
	s, sold, _ := dumped(t)
	s.Lose(models.ShardID(s.id, 1), syncertest.WholeCampaign)
	moves := 0
	scripts := meddled(s.Stack, map[string]func(){"hscan": func() {
		var loading int
		require.NoError(t, s.DB.Raw("SELECT COUNT(*) FROM lots WHERE campaign_id = ? AND loader <> ''", s.id).Row().Scan(&loading))
		if loading > 0 && moves < 5 {
			moves++
			s.refill(2, s.Scripts.Shards(t.Context(), []string{models.ShardID(s.id, 2)})[0].Free()+1)
			s.Sync()
		}
	}})
	done, err := reconciler(s.Stack, scripts, scripts).Repair(t.Context(), s.id, reconcile.RepairHow{})
	require.NoError(t, err)
	require.Empty(t, done.Left.Differences)
	require.Equal(t, 5, moves)
	s.ownedOnce(sold)
}

// sellSome has users of both shards claim what they can get, now.
func (s *sale) sellSome() (sold int) {
	s.T.Helper()
	for shard := 1; shard <= 2; shard++ {
		s.tryRefill(shard, 1)
		sold += s.take(shard, 50)
	}
	return sold
}

// The shard whose grant is forgotten is fenced for another reason. MySQL has all of its claims; what it was credited Redis knows.
func TestRestored_AProofLeavesUnitsWhereRedisHasThem(t *testing.T) {
	t.Parallel()
	s := newSale(t, false)
	s.refill(1, 1)
	s.refill(2, 1)
	sold := s.take(2, 1)
	require.Zero(t, look(s.Stack))
	restore := putBack(s.Stack)
	s.refill(2, 30)
	restore()
	sold += s.take(2, 50)
	two := models.ShardID(s.id, 2)
	require.NoError(t, s.Scripts.Fence(t.Context(), two, 99))
	_ = s.Hydrate(two) // it may be lost
	s.tryRefill(1, 30)
	sold += s.take(1, 50)
	require.LessOrEqual(t, sold, 40)
	s.repaired(sold)
}

// Redis does not hold the shard whose grant is forgotten. Its claims come back from the stream. What they took more than the shard has on
// loan by MySQL was granted.
func TestRestored_AShardThatRedisDoesNotHold(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"evicted", "deleted"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSale(t, false)
			s.refill(1, 1)
			s.refill(2, 1)
			restore := putBack(s.Stack)
			s.refill(2, 30)
			sold := s.take(2, 30)
			two := models.ShardID(s.id, 2)
			if how == "evicted" {
				require.Eventually(t, func() bool {
					return s.Evict(residency.MinIdle) > 0 && s.Residency(two) == models.ResidencyEvicted
				}, waitMost, waitPoll)
			} else {
				k := s.Scripts.KeysOf(two)
				require.NoError(t, s.Redis.Del(t.Context(), k.State, k.Users, k.Keys).Err())
			}
			restore()
			s.leader()
			done, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{})
			require.NoError(t, err)
			s.leader() // which brings it units
			s.Sync()
			require.Empty(t, s.Compare(s.id).Differences, fmt.Sprint(done.Steps))
			b := s.Campaign(two)
			require.GreaterOrEqual(t, b.Total, b.Claimed)
			sold += s.sellOut()
			require.Equal(t, 40, sold)
			require.Empty(t, s.Compare(s.id).Differences)
		})
	}
}

// Redis is rolled back behind a recall: the shard sells units that another shard has sold. Nothing could prevent it here. The comparison
// says how many were sold twice, the repair books them, and what is still free makes up for them. A higher total ends it.
func TestRestored_UnitsThatWereSoldTwiceAreTold(t *testing.T) {
	t.Parallel()
	s := newSale(t, false)
	s.refill(1, 1)
	s.refill(2, 1)
	sold := s.take(1, 3)
	one := models.ShardID(s.id, 1)
	k := s.Scripts.KeysOf(one)
	was := s.Redis.HMGet(t.Context(), k.State, "total", "ups", "out:2", "tseq").Val()
	s.refill(2, 37) // the reserve, and what shard 1 has
	sold += s.take(2, 35)
	require.NoError(t, s.Redis.HSet(t.Context(), k.State, "total", was[0], "ups", was[1], "out:2", cmp.Or(was[2], any("0")), "tseq", was[3]).Err())
	sold += s.take(1, 50)
	require.Equal(t, 45, sold, "7 of 40 were there twice, 2 are free")
	s.leader()
	done, err := s.Reconciler().Repair(t.Context(), s.id, reconcile.RepairHow{})
	require.NoError(t, err)
	require.Equal(t, []string{"7 units were sold twice by servers that lost data: raise total by 7, or close the campaign"}, done.Left.Differences)
	s.leader()
	require.Zero(t, s.take(1, 5)+s.take(2, 5), "what is free is not sold on")
	require.Equal(t, []string{"5 units were sold twice by servers that lost data: raise total by 5, or close the campaign"}, s.Compare(s.id).Differences)
	c := s.Campaign(s.id)
	require.Equal(t, []int64{45, 0}, []int64{c.Claimed, c.Remaining})
	repo := syncertest.NewCampaigns(t, s.DB, s.Scripts)
	for _, total := range []int64{43, 47} {
		_, err := repo.Change(t.Context(), s.id, models.Change{Total: &total})
		require.NoError(t, err)
	}
	s.leader()
	s.Sync()
	require.Empty(t, s.Compare(s.id).Differences)
	require.Equal(t, 2, s.sellOut())
}

// The process that lowers a total dies when Redis has taken the units out, and the reserve is evicted before a mover sees it. What compares
// the campaign has the reserve loaded, and the units are returned.
func TestRepair_UnitsThatWereTakenOutForNoChangeComeBack(t *testing.T) {
	t.Parallel()
	for name, repair := range map[string]func(s *sale){
		"by the leader": func(s *sale) {
			_, err := s.reconciler.Reconcile(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.maintainer.Maintain(t.Context(), true))
		},
		"by an operator": func(s *sale) { s.Repair(s.id, reconcile.RepairHow{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSale(t, false)
			s.refill(1, 1)
			lowered, err := s.mover.Lower(t.Context(), s.id, 5)
			require.NoError(t, err)
			require.EqualValues(t, 5, lowered)
			s.Sync()
			for _, lot := range []int{1, models.ReserveLot} {
				s.evict(lot)
				require.NoError(t, s.Hydrator().Examine(t.Context(), models.ShardID(s.id, lot)), "it is recorded")
			}
			require.Equal(t, []string{"total is 5 units more than what the lots have and what is on its way between them"}, s.Compare(s.id).Differences)
			repair(s)
			s.leader()
			require.Empty(t, s.Compare(s.id).Differences)
			require.Equal(t, 40, s.sellOut())
		})
	}
}
