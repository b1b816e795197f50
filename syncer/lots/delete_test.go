package lots_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/lots"
)

// blanks makes campaigns of each kind
// without claims. Redis has the first ones.
func blanks(t *testing.T, w *syncertest.Stack) (ids []string) {
	t.Helper()
	live := w.Create(10, nil)
	packets := w.OpenPackets(syncertest.ListOf("a", 5))
	wide := w.Create(9, func(c *models.Campaign) { c.Shards = 3 })
	for _, id := range append(models.ShardIDs(wide, 3)[:2], live, packets) {
		require.NoError(t, w.Load(id))
		w.Sync()
	}
	return []string{live, packets, wide, w.Create(7, nil), w.Create(6, func(c *models.Campaign) { c.Shards = 2 })}
}

// live makes a campaign, or the first shard of one of three, that Redis has.
func live(w *syncertest.Stack, total int64, shards int) (id, lot string) {
	w.T.Helper()
	id = w.Create(total, func(c *models.Campaign) { c.Shards = shards })
	lot = id
	if shards > 1 {
		lot = models.ShardID(id, 1)
	}
	require.NoError(w.T, w.Load(lot))
	w.Sync()
	return id, lot
}

// again makes a later campaign of an id, and loads its lots.
func again(w *syncertest.Stack, id string, total int64, shards int) {
	w.T.Helper()
	c := syncertest.CampaignOf(id, total)
	c.Shards = shards
	_, _, err := syncertest.NewCampaigns(w.T, w.DB, w.Scripts).Create(w.T.Context(), c)
	require.NoError(w.T, err)
	lots := []string{id}
	if shards > 1 {
		lots = models.ShardIDs(id, shards)
	}
	for _, lot := range lots {
		require.NoError(w.T, w.Load(lot))
		w.Sync()
	}
}

func nothingOf(t *testing.T, w *syncertest.Stack, id string) {
	t.Helper()
	for _, table := range []string{"definitions", "lots", "packets", "packet_batches", "hold_cursors", "stock_moves"} {
		var n int64
		require.NoError(t, w.DB.Table(table).Where("campaign_id = ?", id).Count(&n).Error)
		require.Zero(t, n, table)
	}
	for _, lot := range append(models.ShardIDs(id, 3), id) {
		require.Empty(t, w.KeysOf(lot))
	}
	require.ErrorIs(t, w.Load(id), models.ErrNotFound)
}

func TestDelete_LeavesNothingInEitherServer(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	ids := blanks(t, w)
	dump := syncertest.DumpOf(t, w.DB)
	for _, id := range ids {
		require.NoError(t, w.Loader().Delete(t.Context(), id))
		nothingOf(t, w, id)
		require.ErrorIs(t, w.Loader().Delete(t.Context(), id), models.ErrNotFound)
		w.Sync()
	}
	var untold int64
	require.NoError(t, w.DB.Table("outbox").Count(&untold).Error)
	require.Zero(t, untold)
	// A restored MySQL applies the deletion from the stream. A later
	// campaign of the same id stays.
	again(w, ids[0], 4, 1)
	require.Len(t, w.Take(ids[0], syncertest.Asks("u", 4)...), 4)
	require.NoError(t, dump.Restore(w.DB))
	w.Sync()
	for _, id := range ids[1:] {
		nothingOf(t, w, id)
	}
	w.RequireBooks(ids[0], 4)
}

// A DBA's lock, or a refusal of MySQL, held back what a move changes.
func TestDelete_SumsThatWaitAreNotTheLaterCampaigns(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	id, giver := live(w, 9, 3)
	w.Exec("ALTER TABLE lots ADD CONSTRAINT stays CHECK (shard <> 1 OR total = 3)")
	move := &lua.Debit{Move: "m", Shard: giver, Epoch: w.Campaign(giver).Epoch, To: 2, Units: 2}
	units, err := w.Scripts.Debit(t.Context(), move)
	require.NoError(t, err)
	require.EqualValues(t, 2, units)
	w.Sync()
	require.NoError(t, w.Loader().Delete(t.Context(), id))
	w.Sync()
	w.Exec("ALTER TABLE lots DROP CONSTRAINT stays")
	again(w, id, 9, 3)
	for _, lot := range models.ShardIDs(id, 3) {
		state, err := w.Scripts.State(t.Context(), lot)
		require.NoError(t, err)
		require.EqualValues(t, 3, state.Total, lot)
	}
}

func TestDelete_RefusesWhatEverHadAClaim(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	wide := w.Create(9, func(c *models.Campaign) { c.Shards = 3 })
	sold, _ := live(w, 10, 1)
	w.Claim(sold, syncertest.Ask("a", "")) // MySQL does not have it yet
	require.ErrorIs(t, w.Loader().Delete(t.Context(), sold), models.ErrClaimed)
	w.Sync()
	shard := models.ShardID(wide, 2)
	require.NoError(t, w.Load(shard))
	w.Sync()
	w.Claim(shard, syncertest.Ask("a", ""))
	w.Sync()
	w.Lose(shard, syncertest.WholeCampaign)
	require.ErrorIs(t, w.Loader().Delete(t.Context(), wide), models.ErrClaimed)
	for _, id := range []string{sold, shard} { // and both go on
		require.NoError(t, w.Load(id))
		w.Sync()
		require.Len(t, w.Take(id, syncertest.Ask("b", "")), 1)
		w.Sync()
	}
}

// A claim or another loader between the
// steps ends the deletion, or is refused.
func TestDelete_TakesNoClaimWhileItLooks(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	id, _ := live(w, 10, 1)
	loader := w.Loader()
	loader.Observe(func(step string) {
		switch step {
		case "fenced":
			_, err := w.Scripts.Fence(t.Context(), "another", lua.FenceAny, []string{id})
			require.ErrorIs(t, err[0], lua.ErrOther)
			replies := w.Claim(id, syncertest.Ask("a", ""))
			require.Equal(t, models.OutcomeAbsent, replies[0].Outcome)
		case "numbered":
			w.Exec("UPDATE lots SET loader = 'another' WHERE campaign_id = '" + id + "'")
		}
	})
	err := loader.Delete(t.Context(), id)
	require.Error(t, err, "another loader has it")
	require.NotErrorIs(t, err, models.ErrClaimed)
	require.Eventually(t, func() bool { return w.Load(id) == nil }, lots.Settle+10*time.Second, 50*time.Millisecond)
	w.Sync()
	require.Len(t, w.Take(id, syncertest.Ask("b", "")), 1)
}

// What the stream has of a deleted campaign is not that of a later one of its
// id, in a restored MySQL too.
func TestDelete_ALaterCampaignIsItselfAfterARestore(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	known := syncertest.NewCampaigns(t, w.DB, w.Scripts)
	dump := syncertest.DumpOf(t, w.DB)
	id, _ := live(w, 10, 1)
	_, err := known.Change(t.Context(), id, models.Change{Total: new(int64(20))})
	require.NoError(t, err)
	w.Reload(id)
	w.Sync()
	require.NoError(t, w.Scripts.Pause(t.Context(), []string{id}, &lua.Pause{ID: "pause"})[0])
	w.Sync()
	require.NoError(t, w.Loader().Delete(t.Context(), id))
	w.Sync()
	again(w, id, 4, 1)
	before := w.Campaign(id)
	require.NoError(t, dump.Restore(w.DB))
	w.Sync()
	after := w.Campaign(id)
	require.Equal(t, []any{before.Status, before.Epoch, before.AppliedVersion, before.Residency, before.SeenEpoch},
		[]any{after.Status, after.Epoch, after.AppliedVersion, after.Residency, after.SeenEpoch})
	require.Len(t, w.Take(id, syncertest.Asks("u", 4)...), 4)
	w.RequireBooks(id, 4)
}

// Neither has it moves of the deleted one.
func TestDelete_MovesAreNotTheLaterCampaignsAfterARestore(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	dump := syncertest.DumpOf(t, w.DB)
	id, giver := live(w, 9, 3)
	move := &lua.Debit{Move: "m", Shard: giver, Epoch: w.Campaign(giver).Epoch, Units: 2}
	_, err := w.Scripts.Debit(t.Context(), move)
	require.NoError(t, err)
	w.Sync()
	require.NoError(t, w.Loader().Delete(t.Context(), id))
	w.Sync()
	again(w, id, 9, 3)
	require.NoError(t, dump.Restore(w.DB))
	w.Sync()
	for _, lot := range models.ShardIDs(id, 3) {
		require.EqualValues(t, 3, w.Campaign(lot).Total, lot)
	}
	require.Empty(t, w.Compare(id).Differences)
}

// A process died between the deletion in MySQL and that in Redis. What is
// left there does not hold back a later campaign of the id.
func TestDelete_WhatRedisKeptIsNotTheLaterCampaigns(t *testing.T) {
	t.Parallel()
	w := syncertest.NewStack(t)
	known := syncertest.NewCampaigns(t, w.DB, w.Scripts)
	id, _ := live(w, 10, 1)
	require.NoError(t, w.Scripts.Pause(t.Context(), []string{id}, &lua.Pause{ID: "pause"})[0])
	w.Sync()
	var left string
	loader := w.Loader()
	loader.Observe(func(step string) {
		if step == "fenced" {
			left = w.Redis.Dump(t.Context(), w.Keys(id).State).Val()
		}
	})
	require.NoError(t, loader.Delete(t.Context(), id))
	require.NoError(t, w.Redis.Restore(t.Context(), w.Keys(id).State, 0, left).Err())
	w.Sync()
	_, _, err := known.Create(t.Context(), syncertest.CampaignOf(id, 4))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, status := range []models.Status{models.StatusPaused, models.StatusOpen} {
		c, err := known.Change(ctx, id, models.Change{Status: &status})
		require.NoError(t, err)
		require.Equal(t, status, c.Status)
	}
	w.Sync()
	require.NoError(t, w.Load(id))
	w.Sync()
	require.Len(t, w.Take(id, syncertest.Asks("u", 4)...), 4)
	w.RequireBooks(id, 4)
}
