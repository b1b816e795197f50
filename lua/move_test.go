package lua_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// newShard makes shard 3 of a campaign of 4, with 10 units on loan.
func newShard(t *testing.T, rdb redis.UniversalClient) *bundle {
	t.Helper()
	return newBundle(t, rdb, func(c *models.Campaign) { c.ID, c.Shards, c.MovedNo = models.ShardID(c.ID, 3), 4, 7 })
}

func (b *bundle) move(no int64, kind models.MoveKind, want int64) (int64, error) {
	return b.s.Move(b.t.Context(), b.c, &models.StockMove{No: no, Kind: kind, Want: want})
}

func (b *bundle) moved(no int64, kind models.MoveKind, want, amount int64) {
	b.t.Helper()
	got, err := b.move(no, kind, want)
	require.NoError(b.t, err)
	require.Equal(b.t, amount, got)
}

func (b *bundle) shard() lua.ShardView { return b.s.Shards(b.t.Context(), []string{b.c.ID})[0] }

func TestUnitsMoveOnceHoweverOftenAMoveIsSent(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		for range 2 {
			b.moved(8, models.MoveGrant, 5, 5)
			require.Equal(t, lua.ShardView{Epoch: 1, Version: 1, Moves: 8, Ups: 1, Total: 15}, b.shard())
		}
		b.claim(want("ada", 12, ""))
		for range 2 {
			b.moved(9, models.MoveRecall, 100, 3)
			require.Equal(t, lua.ShardView{Epoch: 1, Version: 1, Moves: 9, Ups: 1, Seq: 1, Total: 12, Taken: 12}, b.shard())
		}
		b.moved(10, models.MoveRecall, 1, 0)
		for _, no := range []int64{9, 12} {
			_, err := b.move(no, models.MoveGrant, 5)
			require.ErrorIs(t, err, lua.ErrNotNext, "move %d after 10", no)
		}
	})
}

// A MySQL that lost a move gives its number to another one. A shard that took the first does not answer for the second.
func TestAMoveIsKnownByKindAndAmountToo(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		b.moved(8, models.MoveGrant, 5, 5)
		_, err := b.move(8, models.MoveRecall, 5)
		require.ErrorIs(t, err, lua.ErrReused)
		_, err = b.move(8, models.MoveGrant, 4)
		require.ErrorIs(t, err, lua.ErrReused)
		require.Equal(t, int64(15), b.shard().Total)
		b.moved(8, models.MoveGrant, 5, 5)
	})
}

// Whatever claims wait for, the units of a recall are not given to others before every connected replica has it.
func TestARecallWaitsForEachReplica(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		b := newShard(t, connect(t, p.primary.URL()))
		b.moved(8, models.MoveRecall, 2, 2)
		p.replica.Pause()
		b.moved(9, models.MoveGrant, 2, 2)
		for range 2 {
			_, err := b.move(10, models.MoveRecall, 3)
			require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
			require.ErrorContains(t, err, "0 of 1 replicas")
		}
		p.replica.Resume()
		b.moved(10, models.MoveRecall, 3, 3)
		require.Equal(t, int64(7), b.shard().Total)
	})
}

func TestAMoveIsForOneLoad(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		b.c.Epoch = 2
		_, err := b.move(8, models.MoveGrant, 5)
		require.ErrorIs(t, err, lua.ErrOther)
		b.c.Epoch = 1
		require.NoError(t, b.s.Fence(t.Context(), b.c.ID, 1))
		_, err = b.move(8, models.MoveGrant, 5)
		require.ErrorIs(t, err, lua.ErrOther)
		require.ErrorIs(t, b.shard().Err, lua.ErrAbsent, "a fenced shard has no free units that anybody could count on")
		require.NoError(t, rdb.Del(t.Context(), b.keys.State).Err())
		_, err = b.move(8, models.MoveGrant, 5)
		require.ErrorIs(t, err, lua.ErrAbsent)
	})
}

func TestAShardIsDryAndNeverSoldOut(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		replies := b.claim(want("ada", 9, ""), want("bob", 2, ""), want("cy", 1, "k"), want("dan", 1, ""))
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeDry, models.OutcomeClaimed, models.OutcomeDry}, outcomesOf(replies))
		require.Equal(t, b.meta.CampaignID(), replies[0].Claim.CampaignID, "users know nothing of shards")
		entries, err := rdb.XRange(t.Context(), b.keys.Stream, "-", "+").Result()
		require.NoError(t, err)
		require.Len(t, entries, 2, "the last unit of a shard is no line of the campaign")
		for i, entry := range entries {
			e, err := models.DecodeEvent([]byte(entry.Values["payload"].(string)))
			require.NoError(t, err)
			require.Equal(t, []any{b.meta.CampaignID(), 3, int64(i + 1), b.c.ID}, []any{e.CampaignID, e.Shard, e.Seq, e.LotID()})
		}
	})
}

func TestAShardThatForgotAMoveTakesNoClaims(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		b.moved(8, models.MoveRecall, 4, 4)
		_, view, err := b.s.ClaimAfter(t.Context(), b.meta, lua.Position{}, []lua.ClaimRequest{want("ada", 1, "")})
		require.NoError(t, err)
		require.Equal(t, lua.Position{Epoch: 1, Seq: 1, Moves: 8}, view.Position)
		require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "moves", 7, "total", 10).Err()) // Redis went back
		replies, _, err := b.s.ClaimAfter(t.Context(), b.meta, view.Position, []lua.ClaimRequest{want("bob", 1, "")})
		require.NoError(t, err)
		require.Equal(t, models.OutcomeRolledBack, replies[0].Outcome)
		require.ErrorIs(t, b.shard().Err, lua.ErrAbsent, "and of nobody else")
	})
}

func TestAReleaseIsSeenInUps(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		claim := b.claim(want("ada", 2, ""))[0].Claim
		before := b.shard()
		record := lua.ClaimRecord{ID: []byte(claim.ID), UserID: []byte("ada"), Seq: 1, Quantity: 2, At: claim.ClaimedAt.Time}
		_, err := b.s.Release(t.Context(), b.c, []lua.Release{{Claim: record, EventID: uuid.NewString(), Event: []byte("{}")}})
		require.NoError(t, err)
		after := b.shard()
		require.Equal(t, before.Ups+1, after.Ups)
		require.Equal(t, int64(10), after.Free())
	})
}

// A definition that reaches a shard late must not set what it has on loan.
func TestAChangeLeavesWhatAShardHasOnLoan(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		b.c.Total = 99
		st := b.adjust(func(c *models.Campaign) { c.PerUser = 2 })
		require.Equal(t, []int64{10, 7, 4}, []int64{st.Total, st.Moves, int64(st.Meta.Shards)})
	})
}

func TestShardsHavePartitionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 2, 3, 5, 12, 16, 64, 256} {
		seen := map[int]bool{}
		for shard := 1; shard <= models.ShardsMax; shard++ {
			p := lua.PartitionOf(models.ShardID("spring", shard), partitions)
			require.True(t, p >= 0 && p < partitions)
			seen[p] = true
			require.Len(t, seen, min(shard, partitions), "%d shards, %d partitions", shard, partitions)
		}
	}
}
