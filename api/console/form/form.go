// Package form has the fields of the console's forms of campaigns, and turns
// their text into the API's values and back.
package form

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"dibs/api/console/words"
	"dibs/api/wire"
	"dibs/models"
	"dibs/models/calendar"
)

// Field is a field that people fill in.
type Field struct {
	Name  string // the API's
	Label string // for people
}

// The forms are in new.html and fields.html of the console's pages.
var (
	// Changeable are a campaign's fields in the order of display.
	Changeable = []Field{
		{"name", "Name"}, {"public", "Public"}, {"total", "Total, units"}, {"per_user", "A user may hold, units"},
		{"per_user_per_day", "A user may take a day, units"}, {"limits", "Other limits"}, {"low_stock_at", "Stock is low at, units"},
		{"starts_at", "Starts"}, {"ends_at", "Ends"},
	}
	// Packets are the fields of packets to add, in the order of display.
	Packets = []Field{
		{"count", "Packets"}, {"amount", "Amount of all together"}, {"split", "Split"}, {"min", "Smallest"}, {"max", "Largest"},
		{"release_at", "No one takes one before"},
	}
	// Fixed are a campaign's fields that can't be changed.
	Fixed = []string{"id", "kind", "time_zone", "hold_for", "hold_max", "currency", "sender_id", "shards", "shard_by"}

	numbers = []string{"total", "per_user", "per_user_per_day", "low_stock_at", "shards", "count"}
	times   = []string{"starts_at", "ends_at", "release_at"} // in the campaign's zone
	amounts = []string{"amount", "min", "max"}               // in the campaign's currency
)

// Twice selects one of two moments for times that the clocks show twice:
// first or second; "" refuses them.
const Twice = "twice"

// Parse converts a field's text to the API's value. An empty time is nil.
func Parse(name, text string, zone *time.Location, currency, twice string) (any, *wire.Problem) {
	switch {
	case name == "limits":
		return parseLimits(name, text)
	case name == "public" && text == "":
		return false, nil
	case slices.Contains(numbers, name):
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, wire.Invalid(name, "must be a whole number of 0 or more, not “"+text+"”")
		}
		return n, nil
	case slices.Contains(amounts, name):
		n, ok := words.ParseMoney(text, currency)
		if !ok {
			return nil, wire.Invalid(name, "must be an amount such as "+words.Money(125, currency)+" without its currency, not “"+text+"”")
		}
		return n, nil
	case slices.Contains(times, name):
		if text == "" {
			return nil, nil
		}
		at, err := calendar.ParseLocal(text, zone, calendar.Twice(twice))
		if err != nil {
			return nil, wire.Invalid(name, err.Error())
		}
		return models.NewTime(at), nil
	}
	return text, nil
}

// Words writes a field's text for people.
func Words(name, text, currency string) string {
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case text == "":
		return "none"
	case slices.Contains(numbers, name) && err == nil:
		return words.Number(n)
	case slices.Contains(amounts, name):
		minor, _ := words.ParseMoney(text, currency)
		return words.Money(minor, currency)
	case slices.Contains(times, name):
		return strings.Replace(text, "T", " ", 1)
	}
	return text
}

// Zone is a campaign's zone. UTC replaces a name that only an older
// version's machine knew.
func Zone(k *models.CampaignJSON) *time.Location {
	zone, err := calendar.LoadZone(k.TimeZone)
	if err != nil {
		return time.UTC
	}
	return zone
}

// Values are the texts of a campaign's fields.
func Values(k *models.CampaignJSON) map[string]string {
	zone := Zone(k)
	local := func(t *models.Time) string {
		if t == nil {
			return ""
		}
		return calendar.FormatLocal(t.Time, zone)
	}
	n := func(units int64) string { return strconv.FormatInt(units, 10) }
	return map[string]string{
		"id": k.ID, "kind": string(k.Kind), "name": k.Name, "public": k.Public, "total": n(k.Total), "per_user": n(k.PerUser),
		"per_user_per_day": n(k.PerUserPerDay), "limits": Limits(k, false), "low_stock_at": n(k.LowStockAt), "starts_at": local(k.StartsAt),
		"ends_at": local(k.EndsAt), "time_zone": k.TimeZone, "hold_for": k.HoldFor, "hold_max": k.HoldMax,
		"currency": k.Currency, "sender_id": k.SenderID,
		"shards": n(int64(max(1, k.Shards))), "shard_by": k.ShardBy,
	}
}

// Limits writes a campaign's limits: all, or those without their own field.
func Limits(k *models.CampaignJSON, all bool) string {
	var texts []string
	for _, l := range k.Limits {
		if all || l.By != models.ByUser || l.Per != models.PerAll && l.Per != models.PerDay {
			texts = append(texts, l.String())
		}
	}
	return strings.Join(texts, ", ")
}

func parseLimits(name, text string) ([]models.LimitJSON, *wire.Problem) {
	all := []models.LimitJSON{}
	for one := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		l, err := models.ParseLimit(strings.TrimSpace(one))
		if err != nil {
			return nil, wire.Invalid(name, strings.TrimPrefix(err.Error(), models.ErrID.Error()+": "))
		}
		all = append(all, l)
	}
	return all, nil
}
