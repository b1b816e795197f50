package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

// shardsOf are shards of a campaign in Redis,
// by number from 1. The first has the units.
type shardsOf struct {
	t      *testing.T
	rdb    redis.UniversalClient
	s      *lua.Scripts
	shards map[int]*models.Campaign
}

func newShards(t *testing.T, rdb redis.UniversalClient, units int64) *shardsOf {
	t.Helper()
	s, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	l := &shardsOf{t: t, rdb: rdb, s: s, shards: map[int]*models.Campaign{}}
	id := testenv.UniqueID(t, "c")
	for n := 1; n <= 3; n++ {
		c := &models.Campaign{
			ID: models.ShardID(id, n), Kind: models.KindCoupon, Status: models.StatusOpen, Shards: 3, TimeZone: "UTC", Version: 1, Epoch: 1,
		}
		if n == 1 {
			c.Total = units
		}
		loaded, err := s.Load(t.Context(), c)
		require.NoError(t, err)
		require.True(t, loaded)
		l.shards[n] = c
	}
	forgetLoads(t, rdb, lua.StreamKey(0))
	return l
}

func (l *shardsOf) field(shard int, name string) int64 {
	l.t.Helper()
	n, err := l.rdb.HGet(l.t.Context(), l.s.KeysOf(l.shards[shard].ID).State, name).Int64()
	require.NoError(l.t, err)
	return n
}

func (l *shardsOf) set(shard int, field, value string) {
	require.NoError(l.t, l.rdb.HSet(l.t.Context(), l.s.KeysOf(l.shards[shard].ID).State, field, value).Err())
}

func (l *shardsOf) debit(move string, from, to int, units int64) (int64, error) {
	return l.s.Debit(l.t.Context(), &lua.Debit{Move: move, Shard: l.shards[from].ID, Epoch: 1, To: to, Units: units})
}

func (l *shardsOf) credit(move string, to, from int, units int64) (int64, error) {
	return l.s.Credit(l.t.Context(), &lua.Credit{Move: move, Shard: l.shards[to].ID, Epoch: 1, From: from, Units: units})
}

func (l *shardsOf) events() (all []string) {
	campaignID := models.CampaignIDOf(l.shards[1].ID)
	entries, err := l.s.Entries(l.t.Context(), 0, lua.EntryID{}, 1000)
	require.NoError(l.t, err)
	for i := range entries {
		e, err := event.Decode([]byte(entries[i].Payload))
		require.NoError(l.t, err, entries[i].Payload)
		if e.CampaignID == campaignID {
			all = append(all, fmt.Sprintf("%s %s: %d of %d, %d", e.Type, e.Move, e.Quantity, e.Shard, e.Peer))
		}
	}
	return all
}

func TestMove_DebitTakesWhatIsFree(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newShards(t, rdb, 10)
		l.set(1, "taken", "3")
		for i, want := range []int64{5, 2, 0} {
			units, err := l.debit(fmt.Sprint("m", i), 1, 2, 5)
			require.NoError(t, err)
			require.Equal(t, want, units)
		}
		require.Equal(t, []int64{3, 7}, []int64{l.field(1, "total"), l.field(1, "out")})
		units, err := l.s.Debit(t.Context(), &lua.Debit{Move: "m3", Shard: l.shards[1].ID, Epoch: 1, Units: 2, Taken: true})
		require.NoError(t, err)
		require.EqualValues(t, 2, units)
		view := l.s.Shards(t.Context(), []string{l.shards[1].ID})[0]
		require.Equal(t, []int64{1, 7, 0, 2}, []int64{view.Total, view.Out, view.Free(), view.Lacks()}, "out of the total is for no shard")
		require.Equal(t, []string{
			"units.debited m0: 5 of 1, 2", "units.debited m1: 2 of 1, 2", "units.debited m3: 2 of 1, 0",
		}, l.events())
	})
}

func TestMove_CreditCountsOnce(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newShards(t, rdb, 10)
		for _, want := range []int64{6, 0, 0} {
			units, err := l.credit("m1", 2, 1, 6)
			require.NoError(t, err)
			require.Equal(t, want, units)
		}
		_, err := l.credit("m2", 2, 0, 3)
		require.NoError(t, err)
		require.Equal(t, []int64{9, 6, 2}, []int64{l.field(2, "total"), l.field(2, "in"), l.field(2, "ups")}, "a raise came from no shard")
		require.Equal(t, []string{"units.credited m1: 6 of 2, 1", "units.credited m2: 3 of 2, 0"}, l.events())
	})
}

func TestMove_OfAnotherLoadIsRefused(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newShards(t, rdb, 10)
		l.set(1, "epoch", "2")
		l.set(2, "epoch", "2")
		_, err := l.debit("m1", 1, 2, 1)
		require.ErrorIs(t, err, lua.ErrOther)
		_, err = l.credit("m1", 2, 1, 1)
		require.ErrorIs(t, err, lua.ErrOther)
		_, err = l.s.Debit(t.Context(), &lua.Debit{Shard: l.shards[1].ID + "9"})
		require.ErrorIs(t, err, lua.ErrAbsent)
		require.Empty(t, l.events())
	})
}

func TestMove_AShardThatOwesUnitsSellsNone(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newShards(t, rdb, -3)
		meta, err := l.s.MetaOf(l.shards[1])
		require.NoError(t, err)
		outcome := func() models.Outcome {
			replies, _, err := l.s.Claim(t.Context(), meta, []lua.ClaimRequest{want("ada", 1, "")})
			require.NoError(t, err)
			return replies[0].Outcome
		}
		require.Equal(t, models.OutcomeDry, outcome())
		units, err := l.debit("m0", 1, 2, 1)
		require.NoError(t, err)
		require.Zero(t, units)
		view := l.s.Shards(t.Context(), []string{l.shards[1].ID})[0]
		require.NoError(t, view.Err)
		require.Equal(t, []int64{-3, 0, 3}, []int64{view.Total, view.Free(), view.Lacks()})
		_, err = l.credit("m1", 1, 2, 4)
		require.NoError(t, err)
		require.EqualValues(t, 1, l.field(1, "total"))
		require.Equal(t, models.OutcomeClaimed, outcome())
	})
}

// A load reads from MySQL which moves were credited. It forgets those
// of the load before, which no process sends to it.
func TestMove_ALoadForgetsTheMovesBeforeIt(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newShards(t, rdb, 10)
		_, err := l.credit("m1", 2, 1, 6)
		require.NoError(t, err)
		moves := l.s.KeysOf(l.shards[2].ID).Moves
		require.EqualValues(t, 1, rdb.ZCard(t.Context(), moves).Val())
		next := *l.shards[2]
		next.Epoch = 2
		reload(t, l.s, &next, func(st *lua.Staging) {
			st.Total = 6
			st.Shares = lua.Shares{In: 6}
		})
		require.Zero(t, rdb.Exists(t.Context(), moves).Val())
		require.Equal(t, []int64{6, 6, 0}, []int64{l.field(2, "total"), l.field(2, "in"), l.field(2, "out")})
		require.True(t, evict(t, l.s, &next, 0))
	})
}

// A process may send a credit again that it read seconds ago, whatever
// Redis' clock did in between.
func TestMove_CreditCountsOnceWhileTheClockJumps(t *testing.T) {
	t.Parallel()
	clock, err := testenv.NewClock(t)
	if err != nil {
		t.Skip(err)
	}
	l := newShards(t, clock.Redis().Client(), 10)
	for i, off := range []time.Duration{0, 2 * time.Hour, -2 * time.Hour, 0} {
		clock.Set(off)
		_, err := l.credit(fmt.Sprint("m", i), 2, 1, 1)
		require.NoError(t, err)
	}
	for i := range 4 {
		units, err := l.credit(fmt.Sprint("m", i), 2, 1, 1)
		require.NoError(t, err)
		require.Zero(t, units, i)
	}
	require.EqualValues(t, 4, l.field(2, "total"))
}

// A program of before forgets the credits whose score is an hour back by the
// clock. One that runs beside this one may not forget this one's.
func TestMove_AProgramOfBeforeForgetsNoCredit(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newShards(t, rdb, 10)
		_, err := l.credit("m1", 2, 1, 6)
		require.NoError(t, err)
		now, err := l.s.Now(t.Context())
		require.NoError(t, err)
		keys := l.s.KeysOf(l.shards[2].ID)
		require.NoError(t, rdb.ZAdd(t.Context(), keys.Moves, redis.Z{Score: float64(now.UnixMilli()), Member: "m2"}).Err())
		hourBack := fmt.Sprint(now.Add(-time.Hour).UnixMilli())
		forgotten, err := rdb.ZRemRangeByScore(t.Context(), keys.Moves, "-inf", hourBack).Result()
		require.NoError(t, err)
		l.set(2, "moves", fmt.Sprint(2-forgotten))
		units, err := l.credit("m1", 2, 1, 6)
		require.NoError(t, err)
		require.Zero(t, units)
	})
}

// A shard knows its last credits. It takes none
// while it does not know which it had.
func TestMove_TheLastCreditsAreKnown(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newShards(t, rdb, 10)
		moves := l.s.KeysOf(l.shards[2].ID).Moves
		before := make([]redis.Z, 10_000)
		for i := range before {
			before[i] = redis.Z{Score: float64(i), Member: fmt.Sprint("before", i)}
		}
		require.NoError(t, rdb.ZAdd(t.Context(), moves, before...).Err())
		l.set(2, "moves", "10000")
		_, err := l.credit("m1", 2, 1, 1)
		require.NoError(t, err)
		require.Equal(t, []string{"before1"}, rdb.ZRange(t.Context(), moves, 0, 0).Val())
		require.Equal(t, []string{"m1"}, rdb.ZRange(t.Context(), moves, -1, -1).Val())
		require.NoError(t, rdb.Del(t.Context(), moves).Err())
		_, err = l.credit("m2", 2, 1, 1)
		require.ErrorIs(t, err, lua.ErrDamaged)
		require.EqualValues(t, 1, l.field(2, "total"))
	})
}
