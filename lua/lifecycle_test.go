package lua_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

func TestLoadWritesOnceAndWhole(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		starts, ends := noon, noon.Add(1)
		b := newBundle(t, rdb, func(c *models.Campaign) {
			c.Kind, c.Total, c.PerUser, c.PerUserPerDay, c.LowStockAt = models.KindPacket, 7, 2, 1, 3
			c.StartsAt, c.EndsAt, c.TimeZone, c.Currency, c.HoldForMs = &starts, &ends, "Asia/Kathmandu", "NPR", 5
			c.Version, c.Epoch = 4, 2
		})
		st := b.state()
		require.WithinDuration(t, time.Now(), st.AsOf, time.Minute)
		require.Equal(t, "Asia/Kathmandu", st.Meta.Location.String())
		st.AsOf, st.Meta.Location = noon, b.meta.Location
		require.Equal(t, lua.State{
			Meta: b.meta, Status: models.StatusOpen, Epoch: 2, Version: 4, Total: 0, LowStockAt: 3, PerUser: 2, PerDay: 1, AsOf: noon, LastMs: noon.UnixMilli(),
		}, st, "packets come later, see Push")

		before := snapshot(t.Context(), t, rdb)
		other := *b.c
		other.Total = 99
		loaded, err := b.s.Load(t.Context(), &other)
		require.NoError(t, err)
		require.False(t, loaded)
		require.Equal(t, before, snapshot(t.Context(), t, rdb))
	})
}

// Counters of claims whose records are missing mean a loss, never a
// fresh campaign. A campaign that is gone is neither full nor sold out.
func TestLostPartIsNeverReadAsEmpty(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.claim(want("u", 1, "k"))
		for _, part := range []string{b.keys.Users, b.keys.Keys} {
			require.NoError(t, rdb.Rename(t.Context(), part, "aside").Err())
			require.Equal(t, []models.Outcome{models.OutcomeDamaged, models.OutcomeDamaged}, b.outcomes(want("u", 1, "k"), want("v", 1, "")))
			require.NoError(t, rdb.Rename(t.Context(), "aside", part).Err())
		}
		require.NoError(t, rdb.Del(t.Context(), b.keys.State, b.keys.Users, b.keys.Keys, b.keys.Stream).Err())
		require.Equal(t, []models.Outcome{models.OutcomeAbsent, models.OutcomeAbsent}, b.outcomes(want("u", 1, ""), want("v", 1, "")))
		_, err := b.s.State(t.Context(), b.c.ID)
		require.ErrorIs(t, err, lua.ErrAbsent)
		require.Len(t, snapshot(t.Context(), t, rdb), 1, "the signals")

		_, err = b.s.Adjust(t.Context(), b.c, &models.Definition{Version: b.c.Version, Name: "Gala"})
		require.ErrorIs(t, err, lua.ErrAbsent)
		require.Len(t, snapshot(t.Context(), t, rdb), 2, "and the stream, which has the definition")
		require.Equal(t, event.CampaignChanged, b.last().Type)
		require.Equal(t, "Gala", b.last().Definition.Name)
	})
}

// A claim's seq counts from 1, so a line that is crossed before any
// claim has none, as in the events of MySQL.
func TestAdjustNamesNoSeqBeforeTheFirstClaim(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total = 9 })
		b.adjust(func(c *models.Campaign) { c.LowStockAt = 9 })
		entries, err := rdb.XRevRangeN(t.Context(), b.keys.Stream, "+", "-", 1).Result()
		require.NoError(t, err)
		payload := fmt.Sprint(entries[0].Values["payload"])
		require.Contains(t, payload, "campaign.low_stock")
		require.NotContains(t, payload, `"seq"`)
		b.claim(want("u", 1, ""))
		b.adjust(func(c *models.Campaign) { c.Total = 1 })
		require.Equal(t, event.CampaignSoldOut, b.last().Type)
		require.EqualValues(t, 1, b.last().Seq)
	})
}

// A process may still know a campaign that was deleted.
func TestClaimRefusesAnotherCampaignOfTheSameID(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		before := snapshot(t.Context(), t, rdb)
		m, err := b.s.MetaOf(b.c)
		require.NoError(t, err)
		for _, row := range []struct {
			knows int64
			want  models.Outcome
		}{{m.MadeMs - 1, models.OutcomeAbsent}, {m.MadeMs, models.OutcomeClaimed}, {0, models.OutcomeClaimed}} {
			m.MadeMs = row.knows
			replies, _, err := b.s.Claim(t.Context(), m, []lua.ClaimRequest{want("u", 1, "")})
			require.NoError(t, err)
			require.Equal(t, row.want, replies[0].Outcome)
			require.Equal(t, row.want == models.OutcomeAbsent, reflect.DeepEqual(before, snapshot(t.Context(), t, rdb)))
		}
	})
}

// The constant part must be what Redis has: another campaign of the
// same id is no new definition of this one.
func TestAdjustRefusesAnotherCampaignOfTheSameID(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		before := snapshot(t.Context(), t, rdb)
		for name, change := range map[string]func(c *models.Campaign){
			"kind": func(c *models.Campaign) { c.Kind = models.KindPacket }, "zone": func(c *models.Campaign) { c.TimeZone = "Asia/Tokyo" },
			"currency": func(c *models.Campaign) { c.Currency = "EUR" }, "hold": func(c *models.Campaign) { c.HoldForMs = 1 },
		} {
			c := *b.c
			c.Version++
			change(&c)
			_, err := b.s.Adjust(t.Context(), &c, nil)
			require.ErrorIs(t, err, lua.ErrDamaged, name)
		}
		require.Equal(t, before, snapshot(t.Context(), t, rdb))
	})
}
