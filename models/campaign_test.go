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
	require.Equal(t, field+": "+refused.Reason, refused.Error(), what...)
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
	c.HoldForMs = 0
	requireField(t, "", c.Validate())
	c.HoldForMs = 1_500
	require.Equal(t, 1500*time.Millisecond, c.HoldFor())
}

func TestTheWindowOfACampaignHasALength(t *testing.T) {
	t.Parallel()
	at := func(ms int64) *time.Time {
		moment := time.UnixMilli(ms)
		return &moment
	}
	for name, w := range map[string]struct {
		starts, ends *time.Time
		refused      string
	}{
		"none":         {},
		"a start":      {starts: at(5)},
		"an end":       {ends: at(5)},
		"a moment":     {starts: at(5), ends: at(6)},
		"nothing":      {starts: at(5), ends: at(5), refused: "ends_at"},
		"less than so": {starts: at(5), ends: at(4), refused: "ends_at"},
	} {
		c := openCoupon(func(c *models.Campaign) { c.StartsAt, c.EndsAt = w.starts, w.ends })
		requireField(t, w.refused, c.Validate(), name)
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

func TestEveryFieldOfAChangeIsApplied(t *testing.T) {
	t.Parallel()
	status, at := models.StatusPaused, time.UnixMilli(7)
	for field, one := range map[string]struct {
		change models.Change
		want   func(*models.Campaign)
	}{
		"total":            {models.Change{Total: new(int64(1))}, func(c *models.Campaign) { c.Total = 1 }},
		"total to nothing": {models.Change{Total: new(int64(0))}, func(c *models.Campaign) { c.Total = 0 }},
		"per_user":         {models.Change{PerUser: new(int64(2))}, func(c *models.Campaign) { c.PerUser = 2 }},
		"per_user_per_day": {models.Change{PerUserPerDay: new(int64(3))}, func(c *models.Campaign) { c.PerUserPerDay = 3 }},
		"low_stock_at":     {models.Change{LowStockAt: new(int64(4))}, func(c *models.Campaign) { c.LowStockAt = 4 }},
		"status":           {models.Change{Status: &status}, func(c *models.Campaign) { c.Status = models.StatusPaused }},
		"starts_at":        {models.Change{StartsAt: &at}, func(c *models.Campaign) { c.StartsAt = &at }},
		"ends_at":          {models.Change{EndsAt: &at}, func(c *models.Campaign) { c.EndsAt = &at }},
		"no window":        {models.Change{StartsAt: &time.Time{}, EndsAt: &time.Time{}}, func(*models.Campaign) {}},
		"nothing":          {models.Change{}, func(*models.Campaign) {}},
	} {
		got, want := openCoupon(func(*models.Campaign) {}), openCoupon(one.want)
		one.change.Apply(&got)
		require.Equal(t, want, got, field)
	}
}
