package lua_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// unchanged runs something that must leave Redis as it is.
func (b *bundle) unchanged(name string, do func()) {
	b.t.Helper()
	before := dump(b.t, b.rdb)
	do()
	require.Equal(b.t, before, dump(b.t, b.rdb), name)
}

func TestEvictTakesOnlyWhatIsAsAskedFor(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.claim(want("u", 1, "k"), want("v", 2, ""))
		b.redisMs.Add(999)
		is := lua.Position{Epoch: 1, Seq: 2}
		for name, row := range map[string]struct {
			seen lua.Position
			idle time.Duration
		}{
			"a claim more": {lua.Position{Epoch: 1, Seq: 1}, 0}, "a claim less": {lua.Position{Epoch: 1, Seq: 3}, 0},
			"an older load": {lua.Position{Epoch: 0, Seq: 2}, 0}, "a newer load": {lua.Position{Epoch: 2, Seq: 2}, 0}, "too young": {is, time.Second},
		} {
			b.unchanged(name, func() {
				gone, err := b.s.Evict(t.Context(), evicted(b.c, row.seen), row.idle)
				require.NoError(t, err)
				require.False(t, gone, name)
			})
		}
		b.redisMs.Add(1)
		gone, err := b.s.Evict(t.Context(), evicted(b.c, is), time.Second)
		require.NoError(t, err)
		require.True(t, gone)
		left, err := rdb.Exists(t.Context(), b.keys.State, b.keys.Users, b.keys.Keys).Result()
		require.NoError(t, err)
		require.Zero(t, left)
		mark, err := b.s.Lots(t.Context(), []string{b.c.ID}, nil)
		require.NoError(t, err)
		require.Equal(t, is, mark[0].Evicted)
		_, err = b.s.Evict(t.Context(), evicted(b.c, is), 0)
		require.ErrorIs(t, err, lua.ErrAbsent)
	})
}

// A load of less than was evicted is refused, until someone says that it may replace what was there.
func TestALoadBehindTheTombstoneIsRefused(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.claim(want("u", 1, "k"), want("v", 2, ""))
		load := func(epoch int64, claims int, replace bool) error {
			c := *b.c
			c.Epoch = epoch
			again, err := b.s.NewRebuild(t.Context(), &c, epoch-1, replace)
			require.NoError(t, err)
			again.SetSeq(int64(claims))
			_, err = again.Finish(t.Context())
			return err
		}
		evict := func(epoch, seq int64) {
			require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "status", "open").Err())
			gone, err := b.s.Evict(t.Context(), evicted(b.c, lua.Position{Epoch: epoch, Seq: seq}), 0)
			require.NoError(t, err)
			require.True(t, gone)
		}
		evict(1, 2)
		b.unchanged("a claim less", func() { require.ErrorIs(t, load(2, 1, false), lua.ErrBehindTombstone) })
		b.unchanged("a load that was there before", func() { require.ErrorIs(t, load(1, 2, false), lua.ErrBehindTombstone) })
		require.NoError(t, load(2, 2, false))
		evict(2, 2)
		require.NoError(t, load(1, 0, true))
		mark, err := b.s.Lots(t.Context(), []string{b.c.ID}, nil)
		require.NoError(t, err)
		require.Zero(t, mark[0].Evicted)
		require.NoError(t, rdb.Set(t.Context(), b.keys.Evicted, "1:2:3", 0).Err())
		require.NoError(t, rdb.Del(t.Context(), b.keys.State, b.keys.Users, b.keys.Keys).Err())
		require.ErrorIs(t, load(9, 9, false), lua.ErrDamaged)
	})
}

func TestFencedCampaignTakesNothing(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Epoch = 4 })
		b.claim(want("u", 1, "k"))
		b.unchanged("another load", func() { require.ErrorIs(t, b.s.Fence(t.Context(), b.c.ID, 3), lua.ErrOther) })
		require.NoError(t, b.s.Fence(t.Context(), b.c.ID, 4))
		b.unchanged("fenced", func() {
			require.NoError(t, b.s.Fence(t.Context(), b.c.ID, 4))
			require.Equal(t, []models.Outcome{models.OutcomeAbsent, models.OutcomeAbsent}, b.outcomes(want("u", 1, "k"), want("v", 1, "")))
			c := *b.c
			c.Version++
			_, err := b.s.Adjust(t.Context(), &c)
			require.ErrorIs(t, err, lua.ErrOther, "no change opens it")
			gone, err := b.s.Evict(t.Context(), evicted(b.c, lua.Position{Epoch: 4, Seq: 1}), 0)
			require.NoError(t, err)
			require.False(t, gone)
			loaded, err := b.s.Load(t.Context(), &c)
			require.NoError(t, err)
			require.False(t, loaded)
		})
		require.Equal(t, models.StatusFenced, b.state().Status)
		require.NoError(t, b.s.Fence(t.Context(), "nobody", 1))

		damaged := newBundle(t, rdb, nil)
		require.NoError(t, rdb.HSet(t.Context(), damaged.keys.State, "epoch", "x").Err())
		require.NoError(t, damaged.s.Fence(t.Context(), damaged.c.ID, 1), "no readable epoch")
		require.Equal(t, []models.Outcome{models.OutcomeDamaged}, damaged.outcomes(want("u", 1, "")))
	})
}

func TestClaimIsRefusedByARedisThatWasRolledBack(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Epoch = 4 })
		replies, now, err := b.s.ClaimAfter(t.Context(), b.meta, lua.Position{}, wants("u", 3))
		require.NoError(t, err)
		require.Equal(t, models.OutcomeClaimed, replies[2].Outcome)
		require.Equal(t, lua.CampaignView{Position: lua.Position{Epoch: 4, Seq: 3}, Remaining: 7}, now)
		for i, seen := range []lua.Position{{Epoch: 4, Seq: 3}, {Epoch: 3, Seq: 99}, {Epoch: 4}} {
			replies, _, err := b.s.ClaimAfter(t.Context(), b.meta, seen, wants(fmt.Sprint("w", i), 1))
			require.NoError(t, err)
			require.Equal(t, models.OutcomeClaimed, replies[0].Outcome, "%+v", seen)
		}
		for _, seen := range []lua.Position{{Epoch: 4, Seq: 7}, {Epoch: 5}, {Epoch: 5, Seq: 1}} {
			require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "status", "open").Err())
			before := b.state()
			replies, now, err := b.s.ClaimAfter(t.Context(), b.meta, seen, wants("v", 2))
			require.NoError(t, err)
			require.Equal(t, []models.Outcome{models.OutcomeRolledBack, models.OutcomeRolledBack}, outcomesOf(replies))
			require.Equal(t, lua.Position{Epoch: 4, Seq: 6}, now.Position)
			after := b.state()
			require.Equal(t, models.StatusFenced, after.Status, "for callers, too, who saw less")
			before.Status, before.AsOf, after.AsOf = after.Status, time.Time{}, time.Time{}
			require.Equal(t, before, after, "nothing else was changed")
			require.Equal(t, models.OutcomeAbsent, b.outcomes(want("x", 1, ""))[0])
		}
	})
}

func TestFenceAllStopsTheLoadsThatItNamesAndThoseBefore(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		older := newBundle(t, rdb, func(c *models.Campaign) { c.Epoch = 2 })
		same := newBundle(t, rdb, func(c *models.Campaign) { c.Epoch = 4 })
		newer := newBundle(t, rdb, func(c *models.Campaign) { c.Epoch = 5 })
		fenced, err := same.s.FenceAll(t.Context(), map[string]int64{older.c.ID: 4, same.c.ID: 4, newer.c.ID: 4, "nobody": 4})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{older.c.ID, same.c.ID}, fenced)
		for _, b := range []*bundle{older, same} {
			require.Equal(t, models.StatusFenced, b.state().Status)
		}
		require.Equal(t, models.OutcomeClaimed, newer.outcomes(want("u", 1, ""))[0])
	})
}

// announcements are the campaign's events about the stock: type, seq and remaining.
func (b *bundle) announcements() (told []string) {
	b.t.Helper()
	entries, err := b.rdb.XRange(b.t.Context(), b.keys.Stream, "-", "+").Result()
	require.NoError(b.t, err)
	ids := map[string]bool{}
	for _, entry := range entries {
		e, err := models.DecodeEvent([]byte(entry.Values["payload"].(string)))
		require.NoError(b.t, err)
		require.False(b.t, ids[e.ID], "an id of its own")
		ids[e.ID] = true
		if e.CampaignID == b.c.ID && e.Type != models.EventClaimAccepted {
			require.Equal(b.t, e.ID, entry.Values["_watermill_message_uuid"])
			require.Equal(b.t, models.NewTime(time.UnixMilli(b.redisMs.Load())), e.At)
			told = append(told, fmt.Sprintf("%s at %d, %d left", e.Type, e.Seq, *e.Remaining))
		}
	}
	return told
}

func TestCrossingsAreToldOnceEach(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.LowStockAt = 6, 3 })
		b.claim(want("a", 2, ""))
		require.Empty(t, b.announcements())
		b.claim(want("b", 1, ""), want("c", 1, ""))
		told := []string{"campaign.low_stock at 3, 2 left"}
		require.Equal(t, told, b.announcements())
		b.claim(want("d", 1, ""))
		require.Equal(t, told, b.announcements(), "low already")
		b.claim(want("e", 1, ""), want("f", 1, ""))
		told = append(told, "campaign.sold_out at 5, 0 left")
		require.Equal(t, told, b.announcements())
		b.claim(want("g", 1, ""))
		require.Equal(t, told, b.announcements(), "sold out already")

		b.adjust(func(c *models.Campaign) { c.Total = 10 })
		require.Equal(t, told, b.announcements())
		b.claim(want("h", 4, ""))
		require.Equal(t, append(told, "campaign.low_stock at 6, 0 left", "campaign.sold_out at 6, 0 left"), b.announcements(), "both at once")

		silent := newBundle(t, rdb, func(c *models.Campaign) { c.Total = 1 })
		silent.claim(want("a", 1, ""))
		require.Equal(t, []string{"campaign.sold_out at 1, 0 left"}, silent.announcements(), "without a threshold nothing is low")
	})
}

// The claim that leaves exactly low_stock_at units crosses the line.
func TestLowStockIsToldWhenStockLandsOnTheLine(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.LowStockAt = 4, 3 })
		b.claim(want("a", 1, ""))
		told := []string{"campaign.low_stock at 1, 3 left"}
		require.Equal(t, told, b.announcements())
		b.claim(want("b", 1, ""))
		require.Equal(t, told, b.announcements(), "low already")
	})
}

// A change of total or of low_stock_at crosses a line as a claim does: told once, whoever brings it, and again after it was left.
func TestCrossingsByAChangeAreToldOnceEach(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.LowStockAt = 10, 0 })
		b.claim(want("a", 4, ""))
		b.adjust(func(c *models.Campaign) { c.LowStockAt = 5 })
		require.Empty(t, b.announcements(), "6 remain")
		b.adjust(func(c *models.Campaign) { c.LowStockAt = 6 })
		told := []string{"campaign.low_stock at 1, 6 left"}
		require.Equal(t, told, b.announcements())
		_, err := b.s.Adjust(t.Context(), b.c)
		require.NoError(t, err)
		require.Equal(t, told, b.announcements(), "the same version again")
		b.adjust(func(c *models.Campaign) { c.LowStockAt = 8 })
		b.adjust(func(c *models.Campaign) { c.Total = 9 })
		b.claim(want("b", 1, ""))
		require.Equal(t, told, b.announcements(), "low already")

		b.adjust(func(c *models.Campaign) { c.Total = 20 })
		require.Equal(t, told, b.announcements(), "a restock")
		b.adjust(func(c *models.Campaign) { c.Total = 13 })
		told = append(told, "campaign.low_stock at 2, 8 left")
		require.Equal(t, told, b.announcements(), "low again")
		b.adjust(func(c *models.Campaign) { c.Total = 3 })
		told = append(told, "campaign.sold_out at 2, 0 left")
		require.Equal(t, told, b.announcements(), "below what is taken")
		b.adjust(func(c *models.Campaign) { c.Total = 30 })
		b.adjust(func(c *models.Campaign) { c.Total, c.LowStockAt = 5, 1 })
		told = append(told, "campaign.low_stock at 2, 0 left", "campaign.sold_out at 2, 0 left")
		require.Equal(t, told, b.announcements(), "both at once")
		b.adjust(func(c *models.Campaign) { c.Total = 30 })
		b.adjust(func(c *models.Campaign) { c.Total, c.Status = 5, models.StatusClosed })
		require.Equal(t, told, b.announcements(), "no one restocks what is closed")
	})
}

// What Rebuild stages from the events is, byte for byte, what claim.lua wrote: over midnights, leaps of the clock and zones.
func TestRebuildWritesWhatClaimsWrote(t *testing.T) {
	for _, zone := range []string{"UTC", "Asia/Kathmandu", "America/New_York", "Pacific/Apia"} {
		t.Run(zone, func(t *testing.T) {
			eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
				b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.TimeZone = 10_000, zone })
				var reqs []lua.ClaimRequest
				for i, hours := range []int{0, 5, 13, 24, 20, 72, 60, 100} { // noon is on the day before New York's clocks leap
					b.setClock(noon.Add(48*time.Hour + time.Duration(hours)*time.Hour))
					for u, user := range oddUsers {
						key := ""
						if (u+i)%3 == 0 {
							key = fmt.Sprint("key of ", user, i)
						}
						reqs = append(reqs, want(user, int64(1+(u+i)%4), key))
					}
					b.claim(reqs[len(reqs)-len(oddUsers):]...)
				}
				b.rebuild(t, 2, true)
				for _, outcome := range b.outcomes(reqs[:100]...) {
					require.Equal(t, models.OutcomeReplayed, outcome)
				}
			})
		})
	}
}

// rebuild makes load epoch of what the stream tells, and wants the same hashes as before.
func (b *bundle) rebuild(t *testing.T, epoch int64, fence bool) {
	t.Helper()
	read := func() map[string]string {
		all := snapshot(t.Context(), t, b.rdb)
		return map[string]string{"users": all[b.keys.Users], "keys": all[b.keys.Keys]}
	}
	before, state := read(), b.state()
	c := *b.c
	c.Epoch = epoch
	r, err := b.s.NewRebuild(t.Context(), &c, 0, true)
	require.NoError(t, err)
	for _, e := range b.events() {
		require.NoError(t, r.Add(t.Context(), &lua.ClaimRecord{
			ID: []byte(e.ID), UserID: []byte(e.UserID), KeyDigest: []byte(e.Key), Seq: e.Seq, Quantity: e.Quantity, At: e.At.Time, Live: true,
		}))
	}
	if fence {
		require.NoError(t, b.s.Fence(t.Context(), b.c.ID, state.Epoch))
	}
	loaded, err := r.Finish(t.Context())
	require.NoError(t, err)
	require.True(t, loaded)
	require.Equal(t, before, read())
	after := b.state()
	require.Equal(t, []int64{epoch, state.Taken, state.Seq}, []int64{after.Epoch, after.Taken, after.Seq})
	for _, key := range []string{b.keys.State, b.keys.Users, b.keys.Keys} {
		ttl, err := b.rdb.TTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Equal(t, time.Duration(-1), ttl, "%s stays", key)
	}
	b.c.Epoch = epoch
}

func TestRebuildReplacesOnlyWhatMayGo(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Epoch = 4 })
		b.claim(want("u", 1, "k"))
		finish := func(epoch int64, replace bool) (bool, error) {
			c := *b.c
			c.Epoch = epoch
			r, err := b.s.NewRebuild(t.Context(), &c, epoch-1, replace)
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Drop(t.Context())) }()
			return r.Finish(t.Context())
		}
		refused := func(name string, epoch int64, replace bool) {
			b.unchanged(name, func() {
				loaded, err := finish(epoch, replace)
				require.NoError(t, err, name)
				require.False(t, loaded, name)
			})
		}
		refused("it is open", 5, true)
		require.NoError(t, b.s.Fence(t.Context(), b.c.ID, 4))
		refused("fenced, and not to be replaced", 5, false)
		refused("of the same load", 4, true)
		refused("of an older load", 3, true)
		loaded, err := finish(5, true)
		require.NoError(t, err)
		require.True(t, loaded)

		require.NoError(t, rdb.Del(t.Context(), b.keys.State).Err())
		require.NoError(t, rdb.HSet(t.Context(), b.keys.Users, "u", "0:1").Err())
		b.unchanged("what is left of a loss", func() {
			_, err := finish(6, false)
			require.ErrorIs(t, err, lua.ErrDamaged)
		})
		loaded, err = finish(6, true)
		require.NoError(t, err)
		require.True(t, loaded)
	})
}

func TestRebuildOfWhatIsNotAllThereIsRefused(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		require.NoError(t, rdb.Del(t.Context(), b.keys.State).Err())
		r, err := b.s.NewRebuild(t.Context(), b.c, 0, false)
		require.NoError(t, err)
		for i := range int64(2000) { // more than one round trip
			id := want("u", 1, "").ID.String()
			claim := lua.ClaimRecord{ID: []byte(id), UserID: []byte("u"), Seq: i + 1, Quantity: 1, At: noon, Live: true}
			require.NoError(t, r.Add(t.Context(), &claim))
		}
		staged := slices.Collect(maps.Keys(snapshot(t.Context(), t, rdb)))
		require.NotEmpty(t, staged)
		require.NoError(t, rdb.Del(t.Context(), staged...).Err())
		_, err = r.Finish(t.Context())
		require.ErrorIs(t, err, lua.ErrUnavailable, "staged records expired")
		_, err = b.s.State(t.Context(), b.c.ID)
		require.ErrorIs(t, err, lua.ErrAbsent)
		require.NoError(t, r.Drop(t.Context()))
		require.Empty(t, snapshot(t.Context(), t, rdb))
	})
}

// evicted is a campaign that MySQL has up to a position.
func evicted(c *models.Campaign, at lua.Position) *models.Campaign {
	row := *c
	row.Epoch, row.SyncedSeq = at.Epoch, at.Seq
	return &row
}
