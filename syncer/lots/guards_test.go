package lots_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/lots"
	"dibs/syncer/writer"
)

// rollBackOne claims a unit that MySQL gets and one
// that it does not, and restores Redis to the state
// between them. It returns what the second caller saw.
func rollBackOne(t *testing.T, w *syncertest.Stack, id string) lua.Position {
	t.Helper()
	w.Take(id, syncertest.Ask("a", ""))
	before := syncertest.DumpRedis(t, w.Redis)
	_, view := w.ClaimAfter(id, lua.Position{}, syncertest.Ask("b", ""))
	before.Restore(t, w.Redis)
	return view.Position
}

func TestLoad_WaitsForTheTip(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	id := w.Create(10, nil)
	w.Sync()
	w.Claim(id, syncertest.Asks("u", 3)...)
	w.Lose(id, syncertest.WholeCampaign)
	require.ErrorIs(t, w.Load(id), lots.ErrAway)
	require.NotContains(t, w.KeysOf(id), ":keys", "nothing was loaded")
	w.Sync()
	require.NoError(t, w.Load(id))
	w.Sync()
	w.RequireBooks(id, 3)
}

// What another process saw counts before the lot continues.
func TestLoad_WaitsForWhatProcessesSaw(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	id := w.Create(10, nil)
	seen := rollBackOne(t, w, id)
	less := seen
	less.Units--
	less.Seq--
	less.Epoch++ // of another load, so that the lot is stopped
	replies, _ := w.ClaimAfter(id, less, syncertest.Ask("c", ""))
	require.Equal(t, models.OutcomeRolledBack, replies[0].Outcome)
	loader := w.Loader()
	loader.Observe(func(step string) {
		if step == "settling" {
			require.NoError(t, loader.Report(t.Context(), map[string]lua.Position{id: seen}))
		}
	})
	_, err := loader.Recover(t.Context(), id, less)
	require.NoError(t, err)
	w.Sync()
	c := w.Campaign(id)
	require.Equal(t, []int64{1, 1, 1}, []int64{c.Claimed, c.LostClaims, c.LostUnits})
	require.Empty(t, w.Compare(id).Differences)
}

// The stream's loads say what was lost, to a MySQL that forgot what processes
// saw.
func TestLoad_WhatWasLostStaysLostAfterARestoreOfMySQL(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	id := w.Create(10, nil)
	w.Sync()
	dump := syncertest.DumpOf(t, w.DB)
	seen := rollBackOne(t, w, id)
	replies, _ := w.ClaimAfter(id, seen, syncertest.Ask("c", ""))
	require.Equal(t, models.OutcomeRolledBack, replies[0].Outcome)
	_, err := w.Loader().Recover(t.Context(), id, seen)
	require.NoError(t, err)
	w.Sync()
	require.NoError(t, dump.Restore(w.DB))
	w.Sync()
	w.Lose(id, syncertest.WholeCampaign)
	require.NoError(t, w.Load(id))
	w.Sync()
	c := w.Campaign(id)
	require.Equal(t, []int64{1, 1, 1}, []int64{c.Claimed, c.LostClaims, c.LostUnits})
	require.Empty(t, w.Compare(id).Differences)
}

func TestLoad_IsOfItsOwnSnapshot(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	id := w.Create(10, nil)
	w.Take(id, syncertest.Ask("a", ""))
	w.Lose(id, syncertest.WholeCampaign)
	first := w.Loader()
	interfered := false
	first.Observe(func(step string) {
		if step != "settling" || interfered {
			return
		}
		interfered = true
		token := syncertest.DumpRedis(t, w.Redis)
		w.Lose(id, syncertest.WholeCampaign)
		require.NoError(t, w.Load(id))
		w.Take(id, syncertest.Ask("b", ""))
		token.Restore(t, w.Redis)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := first.Load(ctx, id)
	require.ErrorIs(t, err, lots.ErrAway, "Redis lost what MySQL has")
	w.Sync()
	require.NoError(t, w.Load(id))
	w.Sync()
	w.RequireBooks(id, 2)
}

func TestRecover_OfALotThatAFenceTakesForLive(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	coupons := w.Create(10, nil)
	packets := w.OpenPackets(syncertest.ListOf("x", 3))
	for id, damage := range map[string]func(k lua.CampaignKeys) error{
		coupons: func(k lua.CampaignKeys) error { return w.Redis.HSet(t.Context(), k.State, "total", "many").Err() },
		packets: func(k lua.CampaignKeys) error { return w.Redis.Del(t.Context(), k.Waves).Err() },
	} {
		w.Take(id, syncertest.Ask("a", ""))
		require.NoError(t, damage(w.Keys(id)))
		require.Equal(t, []models.Outcome{models.OutcomeDamaged}, syncertest.OutcomesOf(w.Claim(id, syncertest.Ask("b", ""))))
		for range 2 {
			_, err := w.Loader().Recover(t.Context(), id, lua.Position{})
			require.NoError(t, err)
		}
		require.EqualValues(t, 2, w.Campaign(id).LoadAttempts, "loaded again, and once")
		w.Take(id, syncertest.Ask("b", ""))
		require.Empty(t, w.Compare(id).Differences)
	}
}

// The time of a lot does not decrease when a Redis with a slower clock
// loads it. Holds and the ledger rely on times that rise with seq.
func TestLoad_TheTimeOfALotDoesNotGoBack(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	id := w.Create(10, nil)
	w.Take(id, syncertest.Ask("a", ""))
	w.Exec("UPDATE claims SET claimed_at = claimed_at + INTERVAL 2 HOUR WHERE campaign_id = ?", id)
	w.Reload(id)
	w.Take(id, syncertest.Ask("b", ""))
	var times []time.Time
	require.NoError(t, w.DB.Table("claims").Where("campaign_id = ?", id).Order("seq").Pluck("claimed_at", &times).Error)
	require.Len(t, times, 2)
	require.False(t, times[1].Before(times[0]), "%s", times)
}

// Both servers lost a debit, and the credit proves it. Its giver must not
// continue with the units, whether it is stopped or live.
func TestLoad_TheGiverOfAProvenMoveIsLoaded(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	for name, load := range map[string]func(giver string) error{
		"stopped": func(giver string) error {
			replies, _ := w.ClaimAfter(giver, lua.Position{Epoch: 2}, syncertest.Ask("a", ""))
			require.Equal(t, models.OutcomeRolledBack, replies[0].Outcome)
			_, err := w.Loader().Recover(t.Context(), giver, lua.Position{Epoch: 2})
			return err
		},
		"live": func(string) error { return w.Maintainer().Attend(t.Context()) },
	} {
		campaign := w.Create(10, func(c *models.Campaign) { c.Shards = 2 })
		giver, taker := models.ShardID(campaign, 1), models.ShardID(campaign, 2)
		for _, shard := range []string{giver, taker} {
			require.NoError(t, w.Load(shard))
			w.Sync()
		}
		_, err := w.Scripts.Credit(t.Context(), &lua.Credit{Move: name, Shard: taker, Epoch: 1, From: 1, Units: 2})
		require.NoError(t, err)
		w.Sync()
		require.NoError(t, load(giver))
		state, err := w.Scripts.State(t.Context(), giver)
		require.NoError(t, err)
		require.EqualValues(t, 3, state.Total, name)
	}
}

// The stream of another shard may prove that units left this one.
func TestLoad_OfAShardWaitsForTheStreamsOfTheOthers(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	const partitions = 2
	scripts, err := lua.New(w.Redis, lua.Options{Partitions: partitions})
	require.NoError(t, err)
	w.Scripts = scripts
	w.Writer = syncertest.StartWriter(t, writer.Config{DB: w.DB, Partitions: partitions, FlushInterval: time.Millisecond})
	var giver, taker string
	for lua.PartitionOf(giver, partitions) == lua.PartitionOf(taker, partitions) {
		campaign := w.Create(10, func(c *models.Campaign) { c.Shards = 2 })
		giver, taker = models.ShardID(campaign, 1), models.ShardID(campaign, 2)
	}
	for _, shard := range []string{giver, taker} {
		require.NoError(t, w.Load(shard))
		w.Sync()
	}
	_, err = w.Scripts.Credit(t.Context(), &lua.Credit{Move: "m", Shard: taker, Epoch: 1, From: 1, Units: 2})
	require.NoError(t, err)
	keys := w.Scripts.KeysOf(giver)
	require.NoError(t, w.Redis.Del(t.Context(), keys.State, keys.Users, keys.Keys).Err())
	require.ErrorIs(t, w.Load(giver), lots.ErrAway)
	w.Sync()
	require.NoError(t, w.Load(giver))
	state, err := w.Scripts.State(t.Context(), giver)
	require.NoError(t, err)
	require.EqualValues(t, 3, state.Total)
}

// After Redis came back older, the seqs of its claims overlap those of later
// ones: of a user, a later day may come first.
func TestLoad_CountsEachClaimInItsOwnDay(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	var ms atomic.Int64
	ms.Store(time.Date(2030, 1, 1, 23, 59, 59, 0, time.UTC).UnixMilli())
	scripts, err := lua.New(w.Redis, lua.Options{ServerClock: ms.Load, Clock: func() time.Time { return time.UnixMilli(ms.Load()) }})
	require.NoError(t, err)
	w.Scripts = scripts
	id := w.Create(20, func(c *models.Campaign) { c.PerUserPerDay = 2 })
	w.Take(id, syncertest.Ask("first", ""))
	before := syncertest.DumpRedis(t, w.Redis)
	w.Take(id, syncertest.Ask("other", ""), syncertest.Ask("u", ""))
	before.Restore(t, w.Redis)
	ms.Add(2000)
	w.Take(id, syncertest.Ask("u", ""))
	require.NoError(t, w.Load(id))
	w.Sync()
	replies := w.Claim(id, syncertest.Ask("u", ""), syncertest.Ask("u", ""))
	require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserDayLimit}, syncertest.OutcomesOf(replies))
}
