package models_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

func openCoupon(change func(*models.Campaign)) models.Campaign {
	c := models.Campaign{ID: "spring", Kind: models.KindCoupon, Status: models.StatusOpen, Total: 10, TimeZone: "UTC"}
	change(&c)
	return c
}

// requireField expects a refusal of this field, or none for "".
func requireField(t *testing.T, field string, err error, what ...any) {
	t.Helper()
	if field == "" {
		require.NoError(t, err, what...)
		return
	}
	var refused *models.FieldError
	require.ErrorAs(t, err, &refused, what...)
	require.Equal(t, field, refused.Field, what...)
}

func TestNumbersOfACampaignEndAtTheirBounds(t *testing.T) {
	t.Parallel()
	for field, set := range map[string]func(*models.Campaign, int64){
		"total":            func(c *models.Campaign, n int64) { c.Total = n },
		"per_user":         func(c *models.Campaign, n int64) { c.PerUser = n },
		"per_user_per_day": func(c *models.Campaign, n int64) { c.PerUserPerDay = n },
		"low_stock_at":     func(c *models.Campaign, n int64) { c.LowStockAt = n },
	} {
		for n, refused := range map[int64]bool{
			0: false, 1: false, models.UnitsMax: false, -1: true, models.UnitsMax + 1: true, math.MinInt64: true, math.MaxInt64: true,
		} {
			want := ""
			if refused {
				want = field
			}
			c := openCoupon(func(c *models.Campaign) { set(c, n) })
			requireField(t, want, c.Validate(), "%s %d", field, n)
		}
	}
}

func TestAHoldLastsAYearAtMost(t *testing.T) {
	t.Parallel()
	year := models.HoldMax.Milliseconds()
	for ms, refused := range map[int64]string{
		0: "", 1: "", year: "", year + 1: "hold_for", -1: "hold_for", math.MaxInt64: "hold_for",
		math.MaxInt64/1_000_000 + 1: "hold_for", // more than a time.Duration holds
		// 2^64 ns and a little: as int64 it would be under a millisecond
		18_446_744_073_710: "hold_for",
	} {
		c := openCoupon(func(c *models.Campaign) { c.HoldForMs = ms })
		requireField(t, refused, c.Validate(), ms)
	}
	c := openCoupon(func(c *models.Campaign) { c.Kind, c.HoldForMs = models.KindPacket, 1 })
	requireField(t, "hold_for", c.Validate(), "a packet is not held")
}

func TestTheWindowOfACampaignHasALength(t *testing.T) {
	t.Parallel()
	at := func(ms int64) *time.Time {
		moment := time.UnixMilli(ms)
		return &moment
	}
	for _, w := range []struct {
		starts, ends *time.Time
		refused      string
	}{{at(5), nil, ""}, {nil, at(5), ""}, {at(5), at(6), ""}, {at(5), at(5), "ends_at"}, {at(5), at(4), "ends_at"}} {
		c := openCoupon(func(c *models.Campaign) { c.StartsAt, c.EndsAt = w.starts, w.ends })
		requireField(t, w.refused, c.Validate(), "%v to %v", w.starts, w.ends)
	}
}

func TestWordsOfACampaignAreOfTheirLists(t *testing.T) {
	t.Parallel()
	set := map[string]func(*models.Campaign, string){
		"id":        func(c *models.Campaign, s string) { c.ID = s },
		"kind":      func(c *models.Campaign, s string) { c.Kind = models.Kind(s) },
		"status":    func(c *models.Campaign, s string) { c.Status = models.Status(s) },
		"name":      func(c *models.Campaign, s string) { c.Name = s },
		"time_zone": func(c *models.Campaign, s string) { c.TimeZone = s },
		"currency":  func(c *models.Campaign, s string) { c.Currency = s },
		"sender_id": func(c *models.Campaign, s string) { c.SenderID = s },
		"public":    func(c *models.Campaign, s string) { c.Public = s },
	}
	for field, values := range map[string]struct{ good, bad []string }{
		"id":        {[]string{"a", strings.Repeat("a", 64), "A-z_0.9"}, []string{"", strings.Repeat("a", 65), "a b", "ä", "a\n", ".", ".."}},
		"kind":      {[]string{"coupon", "packet"}, []string{"", "Coupon", "packets"}},
		"status":    {[]string{"open", "paused", "closed"}, []string{"", "loading", "fenced", "OPEN"}},
		"name":      {[]string{"", strings.Repeat("n", 200), strings.Repeat("名", 200)}, []string{strings.Repeat("n", 201), strings.Repeat("名", 201)}},
		"time_zone": {[]string{"UTC", "Europe/Berlin", "America/Argentina/Ushuaia"}, []string{"", "Local", "Berlin", "UTC+1", "../UTC", "/etc/localtime", "localtime", "posixrules2", "europe/berlin"}},
		"currency":  {[]string{"", "EUR", "XXX"}, []string{"eur", "EU", "EURO", "E R", "€", "EU1", "[[[", "@@@"}},
		"public":    {[]string{"", "level", "count"}, []string{"all"}},
		"sender_id": {[]string{"", "a", strings.Repeat("é", 128)}, []string{"\n", strings.Repeat("s", 129), "\xff"}},
	} {
		for _, value := range values.good {
			c := openCoupon(func(c *models.Campaign) { set[field](c, value) })
			requireField(t, "", c.Validate(), "%s %q", field, value)
		}
		for _, value := range values.bad {
			c := openCoupon(func(c *models.Campaign) { set[field](c, value) })
			requireField(t, field, c.Validate(), "%s %q", field, value)
		}
	}
}

func TestAChangeIsApplied(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(7)
	c := openCoupon(func(c *models.Campaign) { c.EndsAt = &at })
	change := models.Change{
		Total: new(int64(0)), PerUser: new(int64(2)), PerUserPerDay: new(int64(3)), LowStockAt: new(int64(4)), Status: new(models.StatusPaused),
		StartsAt: &at, EndsAt: &time.Time{},
	}
	change.Apply(&c)
	require.Equal(t, openCoupon(func(c *models.Campaign) {
		c.Total, c.LowStockAt, c.Status, c.StartsAt = 0, 4, models.StatusPaused, &at
		c.PerUser, c.PerUserPerDay = 2, 3
	}), c)
}
