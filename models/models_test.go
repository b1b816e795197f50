package models

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for id, ok := range map[string]bool{
		"": false, "a": true, "A-b_c.9": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "a b": false, "é": false, "a/b": false, "a\x00": false,
	} {
		require.Equal(t, ok, CheckCampaignID(id) == nil, "%q", id)
	}
	for id, ok := range map[string]bool{
		"": false, "ada": true, "a b": true, "日本": true, strings.Repeat("💥", 128): true, strings.Repeat("é", 129): false, strings.Repeat("x", 129): false,
		"a\nb": false, "\x7f": false, "\u2028": false, "\xff": false, "a\u00a0b": false,
	} {
		err := CheckUserID(id)
		require.Equal(t, ok, err == nil, "%q", id)
		if err != nil {
			require.ErrorIs(t, err, ErrID)
		}
	}
}

func campaign() Campaign {
	return Campaign{ID: "spring", Kind: KindCoupon, Status: StatusOpen, Total: 10, TimeZone: "Europe/Berlin"}
}

func TestEveryRefusalOfACampaignNamesItsField(t *testing.T) {
	t.Parallel()
	ok := campaign()
	require.NoError(t, ok.Validate())
	early, late := time.Unix(0, 0), time.Unix(1, 0)
	for field, spoil := range map[string]func(*Campaign){
		"id":               func(c *Campaign) { c.ID = "a b" },
		"kind":             func(c *Campaign) { c.Kind = "voucher" },
		"status":           func(c *Campaign) { c.Status = "away" },
		"name":             func(c *Campaign) { c.Name = strings.Repeat("n", NameLength+1) },
		"total":            func(c *Campaign) { c.Total = UnitsMax + 1 },
		"per_user":         func(c *Campaign) { c.PerUser = -1 },
		"per_user_per_day": func(c *Campaign) { c.PerUserPerDay = -1 },
		"low_stock_at":     func(c *Campaign) { c.LowStockAt = -1 },
		"time_zone":        func(c *Campaign) { c.TimeZone = "Mars/Olympus" },
		"ends_at":          func(c *Campaign) { c.StartsAt, c.EndsAt = &late, &early },
		"hold_for":         func(c *Campaign) { c.HoldForMs = -1 },
		"currency":         func(c *Campaign) { c.Currency = "eur" },
		"public":           func(c *Campaign) { c.Public = "all" },
		"sender_id":        func(c *Campaign) { c.SenderID = "\n" },
	} {
		c := campaign()
		spoil(&c)
		var refused *FieldError
		require.ErrorAs(t, c.Validate(), &refused, field)
		require.Equal(t, field, refused.Field)
		require.NotContains(t, refused.Reason, ErrID.Error())
	}
}

func TestAChangeChangesWhatItNamesAndNothingElse(t *testing.T) {
	t.Parallel()
	c, total, paused := campaign(), int64(20), StatusPaused
	Change{Total: &total, Status: &paused}.Apply(&c)
	want := campaign()
	want.Total, want.Status = 20, StatusPaused
	require.Equal(t, want, c)
	Change{}.Apply(&c)
	require.Equal(t, want, c)
}

// What can be changed was chosen once: each field of a change is part of the definition.
func TestADefinitionHoldsWhateverCanBeChanged(t *testing.T) {
	t.Parallel()
	var c Campaign
	at := time.Unix(1, 0)
	values := map[reflect.Type]any{
		reflect.TypeFor[Limits](): Limits{{By: "device", Per: PerDay, Max: 1}}, reflect.TypeFor[int64](): int64(7), reflect.TypeFor[*time.Time](): &at, reflect.TypeFor[Status](): StatusPaused, reflect.TypeFor[string](): "text",
	}
	var changed []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Change]()) {
		if field.Type.Kind() == reflect.Pointer {
			changed = append(changed, field.Name)
		}
	}
	require.Contains(t, changed, "PerUserPerDay")
	for _, name := range changed {
		field := reflect.ValueOf(&c).Elem().FieldByName(name)
		require.True(t, field.IsValid(), "no field %s of Campaign", name)
		field.Set(reflect.ValueOf(values[field.Type()]))
	}
	definition := c.Definition()
	for _, name := range changed {
		require.False(t, reflect.ValueOf(definition).FieldByName(name).IsZero(), "%s is missing", name)
	}
	c.Claimed, c.Version = 1, 2
	require.Equal(t, definition, c.Definition(), "the books are no part of it")
}

func TestAChangeSetsAndClearsTheWindow(t *testing.T) {
	t.Parallel()
	c, start, end := campaign(), time.UnixMilli(1), time.UnixMilli(2)
	Change{StartsAt: &start, EndsAt: &end}.Apply(&c)
	require.Equal(t, []*time.Time{&start, &end}, []*time.Time{c.StartsAt, c.EndsAt})
	Change{EndsAt: &time.Time{}}.Apply(&c)
	require.Equal(t, []*time.Time{&start, nil}, []*time.Time{c.StartsAt, c.EndsAt})
	Change{StartsAt: &time.Time{}}.Apply(&c)
	require.Nil(t, c.StartsAt)
}

func TestTimesAreUTCWithMilliseconds(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 3600)
	text, err := json.Marshal(NewTime(time.Date(2026, 11, 21, 5, 47, 2, 663_999_999, zone)))
	require.NoError(t, err)
	require.JSONEq(t, `"2026-11-21T04:47:02.663Z"`, string(text))
	text, err = json.Marshal(TimeFromMs(0))
	require.NoError(t, err)
	require.JSONEq(t, `"1970-01-01T00:00:00.000Z"`, string(text))
	var back Time
	require.NoError(t, json.Unmarshal([]byte(`"2026-11-21T05:47:02.663999+01:00"`), &back))
	require.Equal(t, "2026-11-21T04:47:02.663Z", back.Format(TimeLayout))
	require.Error(t, json.Unmarshal([]byte(`"yesterday"`), &back))
}

func TestEventsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	_, err := DecodeEvent([]byte(plainEvent))
	require.NoError(t, err)
	for _, change := range [][2]string{
		{`"v":1`, `"v":2`}, {`"id":"01a1fc6d-e406-7215-ad5f-bdaab8462f2c"`, `"id":""`}, {`"spring"`, `"spr ing"`}, {`"ada"`, `""`},
		{`"quantity":2`, `"quantity":0`}, {`"quantity":2`, `"quantity":1000001`}, {`"seq":17`, `"seq":0`}, {`2026-11`, `1026-11`},
		{`"glTDKakoUPbVOd03b0gW7g"`, `"` + strings.Repeat("k", 65) + `"`},
	} {
		spoiled := strings.Replace(plainEvent, change[0], change[1], 1)
		require.NotEqual(t, plainEvent, spoiled)
		_, err := DecodeEvent([]byte(spoiled))
		require.ErrorIs(t, err, ErrEvent, spoiled)
	}
	_, err = DecodeEvent([]byte(`{"v":1,"type":"claim.invented","id":"x","campaign_id":"c","at":"2026-11-21T04:47:02.663Z"}`))
	require.NoError(t, err, "a type that no one knows yet is passed over, not refused")
}

func TestTookIsForClaimsAndTheirReplaysAlone(t *testing.T) {
	t.Parallel()
	require.True(t, OutcomeClaimed.Took())
	require.True(t, OutcomeReplayed.Took())
	for _, o := range []Outcome{OutcomeSoldOut, OutcomeAbsent, OutcomeDamaged, OutcomeIdempotencyMismatch, ""} {
		require.False(t, o.Took(), o)
	}
}
