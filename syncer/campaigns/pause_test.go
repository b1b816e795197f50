package campaigns_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/caller"
	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/campaigns"
)

func paused(h *syncertest.Stack, id string, want bool) {
	h.T.Helper()
	outcome := h.Claim(id, syncertest.Ask("u", ""))[0].Outcome
	require.Equal(h.T, want, outcome == models.OutcomePaused, outcome)
}

// A pause without MySQL holds at once, in each shard. No definition
// without the pause opens the campaign. MySQL applies it from the claim
// stream, and can open the campaign again.
func TestPause_HoldsUntilMySQLOpens(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	repo := syncertest.NewCampaigns(t, h.DB, h.Scripts)
	one := h.Create(10, nil)
	wide := h.Create(100, func(c *models.Campaign) { c.Shards = 2 })
	require.NoError(t, h.Load(models.ShardID(wide, 1)))
	h.Sync()
	paused(h, one, false)
	h.Sync()

	// A change is committed, and not in Redis yet.
	h.Exec("UPDATE definitions SET per_user = 5, version = version + 1 WHERE campaign_id = ?", one)
	ctx := caller.With(t.Context(), &caller.Caller{Actor: "ada", RequestID: "r1"})
	for _, id := range []string{one, wide} {
		c, err := repo.Pause(ctx, id)
		require.NoError(t, err)
		require.Equal(t, models.StatusPaused, c.Status)
	}
	paused(h, one, true)
	paused(h, models.ShardID(wide, 1), true)
	sender := campaigns.NewSender(h.DB, h.Scripts, &steps.Steps{})
	require.NoError(t, sender.Send(t.Context(), one))
	paused(h, one, true)
	require.Equal(t, models.StatusOpen, h.Campaign(one).Status, "MySQL was not asked")
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	open := models.Change{Status: new(models.StatusOpen)}
	_, err := repo.Change(soon, one, open)
	require.ErrorIs(t, err, context.DeadlineExceeded, "MySQL does not know what it is to open")

	h.Sync()
	for _, id := range []string{one, wide} {
		c := h.Campaign(id)
		require.Equal(t, models.StatusPaused, c.Status)
		require.EqualValues(t, 2, c.Changes, "noted once, whatever the shards")
	}
	var audited []struct{ Actor, RequestID string }
	require.NoError(t, h.DB.Table("audit_log").Where("action = ?", models.AuditCampaignPaused).Find(&audited).Error)
	require.Equal(t, []struct{ Actor, RequestID string }{{"ada", "r1"}, {"ada", "r1"}}, audited)
	require.NoError(t, h.Maintainer().Attend(t.Context()))
	h.Sync()
	paused(h, one, true)

	require.NoError(t, h.Load(models.ShardID(wide, 2)))
	paused(h, models.ShardID(wide, 2), true)
	for _, id := range []string{one, wide} {
		c, err := repo.Change(t.Context(), id, open)
		require.NoError(t, err)
		require.Equal(t, models.StatusOpen, c.Status)
	}
	paused(h, one, false)
	paused(h, models.ShardID(wide, 1), false)
	paused(h, models.ShardID(wide, 2), false)
	h.Sync()
	require.EqualValues(t, 5, h.Campaign(one).PerUser)
}

// A load of a lot that is paused during it starts again, and loads it paused.
func TestPause_OfALotThatIsBeingLoaded(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	repo := syncertest.NewCampaigns(t, h.DB, h.Scripts)
	id := h.Create(10, nil)
	h.Sync()
	h.Evict(0)
	h.Sync()
	fenced, errs := h.Scripts.Fence(t.Context(), "loader", "load", []string{id})
	require.NoError(t, errs[0])
	require.Zero(t, fenced[0].Held)
	lots, isAll, err := repo.PauseAll(t.Context(), time.Second)
	require.NoError(t, err)
	require.True(t, isAll)
	require.Equal(t, []string{id}, lots)
	_, errs = h.Scripts.Fence(t.Context(), "loader", "renew", []string{id})
	require.Error(t, errs[0], "the loader has lost its token")
	h.Sync()
	require.NoError(t, h.Load(id))
	paused(h, id, true)
}

func TestPause_ARestoredMySQLKnowsTheLastWord(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	repo := syncertest.NewCampaigns(t, h.DB, h.Scripts)
	id := h.Create(10, nil)
	h.Sync()
	dump := syncertest.DumpOf(t, h.DB)
	_, err := repo.Pause(t.Context(), id)
	require.NoError(t, err)
	h.Sync()
	between := syncertest.DumpOf(t, h.DB)
	_, err = repo.Change(t.Context(), id, models.Change{Status: new(models.StatusOpen)})
	require.NoError(t, err)
	h.Sync()
	for _, d := range []syncertest.Dump{dump, between} {
		require.NoError(t, d.Restore(h.DB))
		h.Sync()
		require.NoError(t, h.Maintainer().Attend(t.Context()))
		h.Sync()
		require.Equal(t, models.StatusOpen, h.Campaign(id).Status)
		paused(h, id, false)
	}
}

// One process paused the campaign while its clock was an hour ahead,
// and another pauses it after it was opened.
func TestPause_OfAProcessWhoseClockIsBehindHolds(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	repo := syncertest.NewCampaigns(t, h.DB, h.Scripts)
	for name, pause := range map[string]func(id string) error{
		"one": func(id string) error {
			_, err := repo.Pause(t.Context(), id)
			return err
		},
		"all, with MySQL": func(id string) error {
			require.NoError(t, h.Redis.Del(t.Context(), h.Scripts.KeysOf(id).State).Err())
			_, _, err := repo.PauseAll(t.Context(), time.Second)
			return err
		},
	} {
		id := h.Create(10, nil)
		h.Sync()
		ahead := sqlstore.FirstIDAt(time.Now().Add(time.Hour)) + "-7000-8000-000000000000"
		require.NoError(t, h.Scripts.Pause(t.Context(), []string{id}, &lua.Pause{ID: ahead})[0])
		h.Sync()
		_, err := repo.Change(t.Context(), id, models.Change{Status: new(models.StatusOpen)})
		require.NoError(t, err)
		h.Sync()
		require.NoError(t, pause(id))
		h.Sync()
		require.Equal(t, models.StatusPaused, h.Campaign(id).Status, name)
		_, err = repo.Change(t.Context(), id, models.Change{PerUser: new(int64(5))})
		require.NoError(t, err)
		require.NoError(t, h.Load(id))
		paused(h, id, true)
	}
}

// A shard that Redis lacks is paused by the stream alone, which says of
// which campaign: a later one may have its id.
func TestPause_SaysWhenItsCampaignWasMade(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	repo := syncertest.NewCampaigns(t, h.DB, h.Scripts)
	id := h.Create(100, func(c *models.Campaign) { c.Shards = 2 })
	require.NoError(t, h.Load(models.ShardID(id, 1)))
	h.Sync()
	require.NoError(t, h.Redis.Del(t.Context(), h.Scripts.KeysOf(models.ShardID(id, 2)).State).Err())
	_, err := repo.Pause(t.Context(), id)
	require.NoError(t, err)
	made := map[int]int64{}
	entries, err := h.Scripts.Entries(t.Context(), 0, lua.EntryID{}, 1000)
	require.NoError(t, err)
	for i := range entries {
		e, err := event.Decode([]byte(entries[i].Payload))
		require.NoError(t, err)
		if e.Type == event.CampaignPaused {
			made[e.Shard] = e.MadeMs
		}
	}
	at := h.Campaign(id).CreatedAt.UnixMilli()
	require.Equal(t, map[int]int64{1: at, 2: at}, made)
}

// A campaign that is not in Redis is paused by the stream alone.
func TestPause_OfACampaignThatIsAwayIsOpenedToo(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	repo := syncertest.NewCampaigns(t, h.DB, h.Scripts)
	id := h.Create(10, nil)
	require.Equal(t, 1, h.Evict(0))
	h.Sync()
	_, _, err := repo.PauseAll(t.Context(), time.Second)
	require.NoError(t, err)
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = repo.Change(soon, id, models.Change{Status: new(models.StatusOpen)})
	h.Sync()
	require.Equal(t, err == nil, h.Campaign(id).Status == models.StatusOpen, err)
}
