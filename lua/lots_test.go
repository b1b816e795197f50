package lua_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

func (b *bundle) unchanged(name string, do func()) {
	b.t.Helper()
	before := dump(b.t, b.rdb)
	do()
	require.Equal(b.t, before, dump(b.t, b.rdb), name)
}

func (b *bundle) fence(token, how string) (lua.Fenced, error) {
	fenced, errs := b.s.Fence(b.t.Context(), token, how, []string{b.c.ID})
	return fenced[0], errs[0]
}

func evict(t testing.TB, s *lua.Scripts, c *models.Campaign, idle time.Duration) bool {
	t.Helper()
	evicted, errs := s.Evict(t.Context(), []models.Campaign{*c}, idle)
	require.NoError(t, errs[0])
	return evicted[0]
}

func reload(t testing.TB, s *lua.Scripts, c *models.Campaign, stage func(st *lua.Staging)) {
	t.Helper()
	_, errs := s.Fence(t.Context(), "loader", lua.FenceAny, []string{c.ID})
	require.NoError(t, errs[0])
	st, err := s.NewStaging(t.Context(), c, 1)
	require.NoError(t, err)
	st.Token = "loader"
	stage(st)
	require.NoError(t, st.Finish(t.Context()))
}

func TestFence_FindsWhatIsThere(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.claim(want("u", 3, "k"), want("v", 2, ""))
		at := lua.Position{Epoch: 1, Seq: 2, Units: 5}
		b.unchanged("a live lot", func() {
			fenced, err := b.fence("one", lua.FenceAway)
			require.NoError(t, err)
			require.Equal(t, lua.HeldLive, fenced.Held)
		})
		fenced, err := b.fence("one", lua.FenceAny)
		require.NoError(t, err)
		require.Equal(t, lua.Fenced{Held: lua.HeldStopped, Position: at}, fenced)
		require.EqualValues(t, 1, b.s.Signals(t.Context())[0].Stops, "processes are to report")
		require.Equal(t, []models.Outcome{models.OutcomeAbsent}, b.outcomes(want("w", 1, "")))
		_, err = b.s.State(t.Context(), b.c.ID)
		require.ErrorIs(t, err, lua.ErrAbsent)
		b.unchanged("a change waits for the load", func() {
			_, err = b.s.Adjust(t.Context(), b.c, nil)
			require.ErrorIs(t, err, lua.ErrOther)
		})

		_, err = b.fence("two", lua.FenceAway)
		require.ErrorIs(t, err, lua.ErrOther, "another loader is at it")
		_, err = b.fence("two", lua.FenceRenew)
		require.ErrorIs(t, err, lua.ErrOther)
		_, err = b.fence("one", lua.FenceRenew)
		require.NoError(t, err)
		_, err = b.fence("one", lua.FenceLeave)
		require.NoError(t, err)
		fenced, err = b.fence("two", lua.FenceAway)
		require.NoError(t, err)
		require.Equal(t, lua.Fenced{Held: lua.HeldStopped, Position: at}, fenced)

		isNext, inForce, err := b.s.NextGeneration(t.Context(), 0, 3)
		require.NoError(t, err)
		require.True(t, isNext)
		require.EqualValues(t, 3, inForce)
		isNext, inForce, err = b.s.NextGeneration(t.Context(), 0, 3)
		require.NoError(t, err)
		require.False(t, isNext, "it is no higher")
		require.EqualValues(t, 3, inForce)
		fenced, err = b.fence("two", lua.FenceAway)
		require.NoError(t, err)
		require.Equal(t, lua.Fenced{Held: lua.HeldOlder, Position: at}, fenced)

		for _, key := range []string{b.keys.Users, b.keys.Keys, b.keys.State} {
			require.NoError(t, rdb.Del(t.Context(), key).Err())
			require.NoError(t, rdb.Set(t.Context(), key, "x", 0).Err())
			fenced, err = b.fence("two", lua.FenceAway)
			require.NoError(t, err)
			require.Equal(t, lua.HeldDamaged, fenced.Held, key)
		}
		require.NoError(t, rdb.Del(t.Context(), b.keys.State, b.keys.Users, b.keys.Keys).Err())
		fenced, err = b.fence("two", lua.FenceAway)
		require.NoError(t, err)
		require.Equal(t, lua.Fenced{}, fenced)
		require.Positive(t, rdb.PTTL(t.Context(), b.keys.State).Val(), "the token of a loader that dies goes away")
	})
}

func TestGeneration_StopsEveryScript(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		one := b.taken(want("u", 1, ""))
		_, _, err := b.s.NextGeneration(t.Context(), 0, 1)
		require.NoError(t, err)
		require.Equal(t, event.PartitionGeneration, b.last().Type)
		lowered := *b.c
		lowered.Version = 9
		b.unchanged("each script", func() {
			require.Equal(t, []models.Outcome{models.OutcomeAbsent}, b.outcomes(want("v", 1, "")))
			_, err := b.s.State(t.Context(), b.c.ID)
			require.ErrorIs(t, err, lua.ErrAbsent)
		})
		state := rdb.HGetAll(t.Context(), b.keys.State).Val()
		_, err = b.s.Adjust(t.Context(), &lowered, nil)
		require.ErrorIs(t, err, lua.ErrAbsent)
		require.Equal(t, event.CampaignChanged, b.last().Type, "the stream alone has it")
		require.Equal(t, state, rdb.HGetAll(t.Context(), b.keys.State).Val())
		require.Equal(t, []lua.Released{lua.ReleasedAway}, b.giveBack(one), "the event alone is added")
		loaded, err := b.s.Load(t.Context(), b.c)
		require.NoError(t, err)
		require.True(t, loaded)
		require.Equal(t, []models.Outcome{models.OutcomeClaimed}, b.outcomes(want("v", 1, "")))
	})
}

func TestLoad_IsTheTokensAndTheGenerations(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.claim(want("u", 3, "k"))
		load := lua.Load{Campaign: b.c, Token: "one", Seq: 9, Rows: 2, RowUnits: 8}
		try := func() error { return b.s.LoadAll(t.Context(), []lua.Load{load})[0] }
		b.unchanged("no token", func() { require.ErrorIs(t, try(), lua.ErrOther) })
		_, err := b.fence("two", lua.FenceAny)
		require.NoError(t, err)
		b.unchanged("another's token", func() { require.ErrorIs(t, try(), lua.ErrOther) })
		load.Token = "two"
		load.Generation = 1
		b.unchanged("another generation", func() { require.ErrorIs(t, try(), lua.ErrGeneration) })
		load.Generation = 0
		require.NoError(t, try())
		st := b.state()
		require.Equal(t, []int64{9, 0, 0}, []int64{st.Seq, st.Sold, st.Taken})
		require.Equal(t, event.LotLoaded, b.last().Type)
		require.ErrorIs(t, b.s.Resume(t.Context(), &load), lua.ErrOther, "it is live")
	})
}

func TestResume_GoesOnBehindWhatWasSeen(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.claim(want("u", 3, "k"))
		replies, _, err := b.s.ClaimAfter(t.Context(), b.meta, lua.Position{Epoch: 1, Seq: 4, Units: 7}, wants("v", 1))
		require.NoError(t, err)
		require.Equal(t, models.OutcomeRolledBack, replies[0].Outcome)
		require.Equal(t, []models.Outcome{models.OutcomeAbsent}, b.outcomes(want("w", 1, "")), "nor for callers that saw less")
		_, err = b.fence("one", lua.FenceAway)
		require.NoError(t, err)
		next := *b.c
		next.Epoch = 2
		resume := lua.Load{Campaign: &next, Token: "two", Seq: 4, Sold: 7, Rows: 1, RowUnits: 3}
		b.unchanged("another's token", func() { require.ErrorIs(t, b.s.Resume(t.Context(), &resume), lua.ErrOther) })
		resume.Token = "one"
		require.NoError(t, b.s.Resume(t.Context(), &resume))
		st := b.state()
		require.Equal(t, []int64{2, 4, 7, 7}, []int64{st.Epoch, st.Seq, st.Sold, st.Taken}, "what was lost stays taken")
		replies, view, err := b.s.ClaimAfter(t.Context(), b.meta, lua.Position{Epoch: 1, Seq: 4, Units: 7}, wants("v", 1))
		require.NoError(t, err)
		require.Equal(t, models.OutcomeClaimed, replies[0].Outcome)
		require.Equal(t, lua.Position{Epoch: 2, Seq: 5, Units: 8}, view.Position)
		require.Equal(t, []models.Outcome{models.OutcomeReplayed}, b.outcomes(want("u", 3, "k")))
	})
}

func TestEvict_TakesWhatIsIdle(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		starts := noon.Add(time.Hour)
		later := newBundle(t, rdb, func(c *models.Campaign) { c.StartsAt = &starts })
		later.redisMs.Add(time.Minute.Milliseconds())
		require.False(t, evict(t, later.s, later.c, time.Second), "it is to begin")
		b := newBundle(t, rdb, nil)
		known := want("u", 1, "k")
		b.claim(known)
		evict := func(idle time.Duration) bool { return evict(t, b.s, b.c, idle) }
		b.redisMs.Add(999)
		require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeSoldOut}, b.outcomes(known, want("v", 100, "")), "no claim")
		b.unchanged("too young", func() { require.False(t, evict(time.Second)) })
		b.redisMs.Add(1)
		_, err := b.fence("one", lua.FenceAny)
		require.NoError(t, err)
		b.unchanged("a loader is at it", func() { require.False(t, evict(time.Second)) })
		_, err = b.fence("one", lua.FenceLeave)
		require.NoError(t, err)
		require.True(t, evict(time.Second), "the loader gave up")
		require.Zero(t, rdb.Exists(t.Context(), b.keys.State, b.keys.Users, b.keys.Keys).Val())
		require.Equal(t, event.LotEvicted, b.last().Type)
		require.True(t, evict(time.Second), "MySQL is told so of one that is gone")
	})
}

// Each number of a position reveals a rollback by itself.
func TestClaim_ComparesWhatTheCallerSaw(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, one := range []struct {
			more lua.Position
			want models.Outcome
		}{
			{lua.Position{}, models.OutcomeClaimed},
			{lua.Position{Epoch: 1}, models.OutcomeRolledBack},
			{lua.Position{Seq: 1}, models.OutcomeRolledBack},
			{lua.Position{Units: 1}, models.OutcomeRolledBack},
		} {
			b := newBundle(t, rdb, nil)
			b.claim(want("u", 3, "k"))
			state := b.state()
			at := state.Position()
			seen := lua.Position{Epoch: at.Epoch + one.more.Epoch, Seq: at.Seq + one.more.Seq, Units: at.Units + one.more.Units}
			replies, _, err := b.s.ClaimAfter(t.Context(), b.meta, seen, wants("v", 1))
			require.NoError(t, err)
			require.Equal(t, one.want, replies[0].Outcome, "%+v", one.more)
		}
	})
}

func TestTogether_EachHasItsOwnOutcome(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		cs := []models.Campaign{*b.c, *b.c, *b.c}
		cs[0].ID += "a"
		cs[1].ID += "b"
		require.NoError(t, rdb.ScriptFlush(t.Context()).Err(), "a redis that forgot the scripts is told them")
		fenced, errs := b.s.Fence(t.Context(), "one", lua.FenceAway, []string{cs[0].ID, cs[1].ID, cs[2].ID})
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, []lua.Held{lua.HeldNothing, lua.HeldNothing, lua.HeldLive}, []lua.Held{fenced[0].Held, fenced[1].Held, fenced[2].Held})
		loads := make([]lua.Load, len(cs))
		for i := range cs {
			loads[i] = lua.Load{Campaign: &cs[i], Token: "one"}
		}
		loads[1].Generation = 5
		errs = b.s.LoadAll(t.Context(), loads)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], lua.ErrGeneration)
		require.ErrorIs(t, errs[2], lua.ErrOther)
		require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
		evicted, errs := b.s.Evict(t.Context(), cs, 0)
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, []bool{true, false, true}, evicted, "someone loads the second")
	})
}
