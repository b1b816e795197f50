package campaigns_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/campaigns"
	"dibs/syncer/records"
	"dibs/syncer/resolve"
	"dibs/syncer/settings"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

func TestCampaigns_CreateGivesBackWhatItStored(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t))
		at := time.Date(2026, 11, 21, 12, 0, 0, 123_456_789, time.FixedZone("CET", 3600))
		asked := syncertest.CampaignOf("spring", 100)
		asked.Name, asked.PerUser, asked.PerUserPerDay, asked.LowStockAt, asked.HoldForMs = "Spring ☘", 3, 1, 10, 900_000
		asked.StartsAt, asked.EndsAt, asked.Currency, asked.SenderID = &at, new(at.Add(time.Hour)), "EUR", "bank"
		asked.Public = models.PublicCount
		stored, created, err := repo.Create(t.Context(), asked)
		require.NoError(t, err)
		require.True(t, created)

		want := asked
		want.StartsAt, want.EndsAt = new(at.UTC().Truncate(time.Millisecond)), new(at.Add(time.Hour).UTC().Truncate(time.Millisecond))
		want.Version, want.Changes, want.Remaining, want.Partition = 1, 1, 100, lua.PartitionOf("spring", syncertest.Partitions)
		want.Residency, want.Shards, want.HoldMaxMs = models.ResidencyNone, 1, 1_800_000
		want.CreatedAt, want.UpdatedAt = stored.CreatedAt, stored.UpdatedAt
		require.Equal(t, want, stored)
		require.WithinDuration(t, time.Now(), stored.CreatedAt, time.Minute)

		got, err := repo.Get(t.Context(), "spring")
		require.NoError(t, err)
		require.Equal(t, stored, got)
		_, err = repo.Get(t.Context(), "Spring")
		require.ErrorIs(t, err, models.ErrNotFound)

		ids, err := records.NewBooks(db).Public(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, []string{"spring"}, ids)
		_, err = repo.Change(t.Context(), "spring", models.Change{Name: new("Summer"), Public: new("")})
		require.NoError(t, err)
		got, err = repo.Get(t.Context(), "spring")
		require.NoError(t, err)
		require.Equal(t, []string{"Summer", ""}, []string{got.Name, got.Public})
	})
}

// Earlier versions wrote this digest into created_digest. A renamed field must
// keep its name there, or a repeated creation counts as another campaign.
func TestCampaigns_CreateStoresTheDigestOfEarlierVersions(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	starts := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	_, _, err := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)).Create(t.Context(), models.Campaign{
		ID: "summer", Kind: models.KindCoupon, Name: "Summer", Status: models.StatusOpen, Total: 100, PerUser: 2, PerUserPerDay: 1,
		TimeZone: "Europe/Berlin", StartsAt: &starts, LowStockAt: 10, HoldForMs: 900_000,
	})
	require.NoError(t, err)
	var digest string
	require.NoError(t, db.Raw("SELECT created_digest FROM definitions").Scan(&digest).Error)
	require.Equal(t, "dbc4e4a025d86d44ec5cd361bbebb1ae47c35a2634efc6fffacfb7e3f662319b", digest)
}

func TestCampaigns_CreateAgainIsToldFromAnotherUnderTheSameID(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t))
		var made atomic.Int64
		var g errgroup.Group
		for range 8 {
			g.Go(func() error {
				_, mine, err := repo.Create(t.Context(), syncertest.CampaignOf("c", 100))
				if mine {
					made.Add(1)
				}
				return err
			})
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, 1, made.Load())
		_, _, err := repo.Create(t.Context(), syncertest.CampaignOf("c", 101))
		require.ErrorIs(t, err, models.ErrExists)

		changed, err := repo.Change(t.Context(), "c", models.Change{Total: new(int64(150))})
		require.NoError(t, err)
		for _, total := range []int64{100, 150} { // as it was created, and as it is now
			again, created, err := repo.Create(t.Context(), syncertest.CampaignOf("c", total))
			require.NoError(t, err)
			require.False(t, created)
			require.Equal(t, changed, again)
		}
	})
}

func TestCampaigns_ChangeIsInForceInRedisWhenItReturns(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo, scripts, id := syncertest.Live(t, db, 100)
		var last int64
		for _, change := range []models.Change{
			{Total: new(int64(150))}, {Status: new(models.StatusPaused)}, {Total: new(int64(40)), Status: new(models.StatusOpen)},
		} {
			c, err := repo.Change(t.Context(), id, change)
			require.NoError(t, err)
			require.Greater(t, c.Version, last)
			last = c.Version
			syncertest.SyncOpen(t, db)
			c, err = repo.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, c.Version, c.AppliedVersion)
			require.Equal(t, c.Total, c.Remaining)
			state, err := scripts.State(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, []any{c.Version, c.Total, c.Status}, []any{state.Version, state.Total, state.Status})
		}
		before, err := repo.Get(t.Context(), id)
		require.NoError(t, err)
		same, err := repo.Change(t.Context(), id, models.Change{Total: new(int64(40))})
		require.NoError(t, err)
		require.Equal(t, before, same, "nothing changed, no new version")
		require.EqualValues(t, 4, same.Changes, "as created, and three changes")

		past := time.Now().Add(-time.Hour)
		for _, step := range []struct {
			change models.Change
			want   models.Outcome
		}{
			{models.Change{EndsAt: &past}, models.OutcomeEnded},
			{models.Change{EndsAt: &time.Time{}}, models.OutcomeClaimed},
			{models.Change{StartsAt: new(past.Add(48 * time.Hour))}, models.OutcomeNotStarted},
			{models.Change{StartsAt: &time.Time{}}, models.OutcomeClaimed},
		} {
			_, err := repo.Change(t.Context(), id, step.change)
			require.NoError(t, err)
			require.Equal(t, step.want, syncertest.Claim(t, scripts, id), "%+v", step.change)
		}
		_, err = repo.Change(t.Context(), id, models.Change{Status: new(models.StatusClosed)})
		require.NoError(t, err)
		_, err = repo.Change(t.Context(), id, models.Change{Status: new(models.StatusOpen)})
		var field *models.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "status", field.Field)
		_, err = repo.Change(t.Context(), "none", models.Change{})
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

// A flush locks the row of a shard before that of the campaign. Another
// order would deadlock with it.
func TestCampaigns_ShardsAreLockedBeforeTheirCampaign(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, func(c *models.Campaign) { c.Shards = 12 })
	for name, lock := range map[string]func() error{
		"change": func() error {
			_, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Change(t.Context(), id, models.Change{Status: new(models.StatusPaused)})
			return err
		},
		"sums": func() error { return campaigns.SumShards(t.Context(), h.DB, id) },
	} {
		flush := h.DB.Begin()
		t.Cleanup(func() { flush.Rollback() })
		require.NoError(t, flush.Exec("UPDATE lots SET claimed = claimed WHERE id = ?", models.ShardID(id, 2)).Error)
		locked := make(chan error, 1)
		go func() { locked <- lock() }()
		require.Eventually(t, func() bool {
			var waits int
			err := h.DB.Raw("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE '%lots%'" +
				" AND id <> CONNECTION_ID()").Scan(&waits).Error
			return err == nil && waits > 0
		}, 10*time.Second, 10*time.Millisecond, name)
		require.NoError(t, flush.Exec("SELECT id FROM lots WHERE id = ? FOR UPDATE NOWAIT", id).Error, name)
		require.NoError(t, flush.Commit().Error)
		require.NoError(t, <-locked, name)
	}
	require.Equal(t, models.StatusPaused, h.Campaign(id).Status)
}

func TestSweeper_GoesOnPastCampaignsThatFail(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	_, scripts, id := syncertest.Live(t, db, 100)
	others := make([]models.Campaign, 250)
	for i := range others {
		others[i] = syncertest.CampaignOf(fmt.Sprint("a-", i), 1)
	}
	syncertest.AddCampaigns(t, db, others...)
	// a partition without a campaign
	require.NoError(t, db.Exec("UPDATE lots SET partition_no = ? WHERE id <> ?", syncertest.Partitions, id).Error)
	require.NoError(t, db.Exec("UPDATE lots SET total = 7, untold = 1 WHERE id = ?", id).Error)
	require.NoError(t, db.Exec("UPDATE definitions SET version = 2 WHERE campaign_id = ?", id).Error)
	require.ErrorIs(t, syncertest.NewMaintainer(t, db, scripts, time.Hour).Attend(t.Context()), settings.ErrPartitions)
	state, err := scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 7, state.Total)
}

// MySQL was restored to before a change that Redis has. Counting to the
// same version again must not make the two agree.
func TestCampaigns_AChangeAfterOneThatMySQLLostIsInForce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo, scripts, id := syncertest.Live(t, db, 100)
		before, err := repo.Get(t.Context(), id)
		require.NoError(t, err)
		_, err = repo.Change(t.Context(), id, models.Change{Total: new(int64(500))})
		require.NoError(t, err)
		require.NoError(t, db.Exec("UPDATE lots SET total = ?, applied_version = ? WHERE id = ?", before.Total, before.AppliedVersion, id).Error)
		require.NoError(t, db.Exec("UPDATE definitions SET version = ? WHERE campaign_id = ?", before.Version, id).Error)

		_, err = repo.Change(t.Context(), id, models.Change{PerUser: new(int64(3))})
		require.NoError(t, err)
		syncertest.SyncOpen(t, db)
		after, err := repo.Get(t.Context(), id)
		require.NoError(t, err)
		state, err := scripts.State(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []int64{100, after.Version, after.Version}, []int64{state.Total, state.Version, after.AppliedVersion})
	})
}

func TestPartitions_AreFixedOnceThereAreCampaigns(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		require.NoError(t, settings.CheckPartitions(t.Context(), db, 4))
		repo := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)) // runs with 3
		_, _, err := repo.Create(t.Context(), syncertest.CampaignOf("c", 1))
		require.ErrorIs(t, err, settings.ErrPartitions)
		require.NoError(t, settings.CheckPartitions(t.Context(), db, syncertest.Partitions), "there is no data yet")
		_, _, err = repo.Create(t.Context(), syncertest.CampaignOf("c", 1))
		require.NoError(t, err)
		err = settings.WatchPartitions(t.Context(), db, 4, time.Millisecond)
		require.ErrorContains(t, err, "made with 3, this process runs with 4")
		require.ErrorContains(t, settings.CheckPartitions(t.Context(), db, 5), "made with 3, configured are 5")
	})
}

// A process with another number of partitions finds nothing in its slot. It
// must neither load a second stock there nor write the campaign off.
func TestLoader_LeavesACampaignOfAnotherPartitionAlone(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo, scripts, _ := syncertest.Live(t, db, 100)
		other, err := lua.New(syncertest.OpenRedis(t), lua.Options{Partitions: 7})
		require.NoError(t, err)
		var id string
		for id == "" || lua.PartitionOf(id, 7) == lua.PartitionOf(id, syncertest.Partitions) {
			id = syncertest.Stored(t, db, scripts, 100)
		}
		stranger := syncertest.NewLoader(t, db, other)
		_, err = stranger.Load(t.Context(), id)
		require.ErrorIs(t, err, settings.ErrPartitions, "not loaded yet")
		_, err = syncertest.NewLoader(t, db, scripts).Load(t.Context(), id)
		require.NoError(t, err)

		before, err := repo.Get(t.Context(), id)
		require.NoError(t, err)
		_, err = stranger.Load(t.Context(), id)
		require.ErrorIs(t, err, settings.ErrPartitions, "resident")
		require.ErrorIs(t, stranger.Reload(t.Context(), id), settings.ErrPartitions)
		after, err := repo.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, before, after, "it is not written off")
		_, err = other.State(t.Context(), id)
		require.ErrorIs(t, err, lua.ErrAbsent, "no second stock")
		require.Equal(t, models.OutcomeClaimed, syncertest.Claim(t, scripts, id))
	})
}

// Redis announces a line that a change crosses, or MySQL if Redis lacks
// the campaign, and again after a restock. The event has one id, whoever
// announces it.
func TestCampaigns_AChangeThatCrossesIsToldOnce(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, func(c *models.Campaign) { c.LowStockAt = 10 })
	repo, relay := syncertest.NewCampaigns(t, h.DB, h.Scripts), resolve.NewRelay(h.DB, h.Scripts, nil)
	var changes []string
	change := func(total, low int64) {
		t.Helper()
		c, err := repo.Change(t.Context(), id, models.Change{Total: &total, LowStockAt: &low})
		require.NoError(t, err)
		changes = append(changes, lua.ChangeID(&c))
		syncertest.ApplyOutbox(t, h.DB, relay)
		h.Sync()
	}
	told := func() (all []string) {
		t.Helper()
		entries, err := h.Redis.XRange(t.Context(), lua.StreamKey(0), "-", "+").Result()
		require.NoError(t, err)
		for _, entry := range entries {
			e, err := event.Decode([]byte(entry.Values["payload"].(string)))
			require.NoError(t, err)
			if e.CampaignID == id && e.Remaining != nil {
				require.Contains(t, changes, strings.Split(e.ID, ":")[0])
				all = append(all, fmt.Sprintf("%s, %d left", e.Type, *e.Remaining))
			}
		}
		return all
	}
	h.Claim(id, syncertest.Asks("u", 20)...)
	h.Sync()
	change(100, 79)
	require.Empty(t, told(), "80 remain")
	change(100, 80)
	want := []string{"campaign.low_stock, 80 left"}
	require.Equal(t, want, told(), "in redis")
	change(200, 80)
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, time.Millisecond)
	h.Sync()
	change(200, 150)
	require.Equal(t, want, told(), "180 remain")
	change(170, 150)
	want = append(want, "campaign.low_stock, 150 left")
	require.Equal(t, want, told(), "in mysql alone")
	change(20, 150)
	want = append(want, "campaign.sold_out, 0 left")
	require.Equal(t, want, told())
	require.NoError(t, h.Load(id))
	h.Sync()
	require.Equal(t, want, told(), "a load crosses nothing")
	change(200, 150)
	change(100, 150)
	require.Equal(t, append(want, "campaign.low_stock, 80 left"), told(), "in redis again")
}

func TestCampaigns_AChangeForAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo, _, id := syncertest.Live(t, db, 100)
		read, err := repo.Get(t.Context(), id)
		require.NoError(t, err)
		var made atomic.Int64
		var group errgroup.Group
		for i := range 8 {
			group.Go(func() error {
				_, err := repo.Change(t.Context(), id, models.Change{Total: new(int64(200 + i)), IfVersion: []int64{read.Version}})
				if err == nil {
					made.Add(1)
				} else if !errors.Is(err, models.ErrChanged) {
					return err
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		require.EqualValues(t, 1, made.Load())
		now, err := repo.Get(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, 2, now.Changes)
		_, err = repo.Change(t.Context(), id, models.Change{Total: &now.Total, IfVersion: []int64{}})
		require.ErrorIs(t, err, models.ErrChanged, "no version is meant, even by a change that changes nothing")
	})
}

// The clock of the process is an hour ahead of Redis'. A limit that is
// set while the campaign is not in Redis holds for the next claim.
func TestCampaigns_ANewLimitStartsByTheClockOfClaims(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	behind, err := lua.New(h.Redis, lua.Options{ServerClock: func() int64 { return time.Now().Add(-time.Hour).UnixMilli() }})
	require.NoError(t, err)
	h.Scripts = behind
	id := h.Create(10, nil)
	require.Equal(t, 1, h.Evict(0))
	h.Sync()
	limits := models.Limits{{By: models.ByUser, Per: models.PerHour, Max: 1}}
	_, err = syncertest.NewCampaigns(t, h.DB, behind).Change(t.Context(), id, models.Change{Limits: &limits})
	require.NoError(t, err)
	h.Sync()
	require.NoError(t, h.Load(id))
	outcomes := syncertest.OutcomesOf(h.Claim(id, syncertest.Ask("ada", ""), syncertest.Ask("ada", "")))
	require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeLimit}, outcomes)
}

func TestCampaignsAreFoundByTextAndStatusInEachOrder(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t))
		for i, c := range []models.Campaign{
			{ID: "spring-sale", Name: "FRÜHLING", Total: 10}, {ID: "spring_100", Name: "50% off", Total: 30}, {ID: "Winter", Name: "the SPRING after", Total: 20},
		} {
			c.Kind = models.KindCoupon
			_, _, err := repo.Create(t.Context(), c)
			require.NoError(t, err)
			require.NoError(t, db.Exec("UPDATE lots SET claimed = ?, updated_at = ? WHERE id = ?", i,
				time.Date(2027, 1, 4-i, 0, 0, 0, 0, time.UTC), c.ID).Error)
		}
		require.NoError(t, db.Exec("UPDATE definitions SET status = 'closed' WHERE campaign_id = 'Winter'").Error)
		ids := func(q models.CampaignQuery) (ids []string) {
			n, err := repo.Count(t.Context(), q)
			require.NoError(t, err)
			q.Limit = 10
			page, err := repo.List(t.Context(), q)
			require.NoError(t, err)
			for i := range page {
				ids = append(ids, page[i].ID)
			}
			require.Len(t, ids, int(n))
			return ids
		}
		require.Equal(t, []string{"Winter", "spring-sale", "spring_100"}, ids(models.CampaignQuery{Text: "sPring"}), "in the name, too")
		require.Equal(t, []string{"spring_100"}, ids(models.CampaignQuery{Text: "0% o"}))
		require.Equal(t, []string{"spring_100"}, ids(models.CampaignQuery{Text: "g_"}))
		require.Empty(t, ids(models.CampaignQuery{Text: "!"}))
		require.Equal(t, []string{"spring-sale"}, ids(models.CampaignQuery{Text: "FRÜh"}))
		require.Equal(t, []string{"Winter"}, ids(models.CampaignQuery{Status: models.StatusClosed}))
		require.Equal(t, []string{"spring_100", "Winter", "spring-sale"}, ids(models.CampaignQuery{Sort: models.SortByBusy}))
		require.Equal(t, []string{"spring_100", "Winter", "spring-sale"}, ids(models.CampaignQuery{Sort: models.SortByTotal}))
		require.Equal(t, []string{"spring-sale", "Winter", "spring_100"}, ids(models.CampaignQuery{Sort: models.SortByLeft}))
		for after, id := range map[string]string{"": "Winter", "Winter": "spring-sale", "spring-sale": "spring_100"} {
			page, err := repo.List(t.Context(), models.CampaignQuery{After: after, Limit: 1})
			require.NoError(t, err)
			require.Equal(t, id, page[0].ID, "after %q", after)
		}
	})
}
