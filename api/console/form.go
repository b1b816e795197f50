package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/models"
	"dibs/models/calendar"
)

// The forms are in pages/new.html and pages/fields.html. Their fields have
// the API's names. changeable and packetFields have the names for people,
// in the order of display.
var (
	changeable = []field{
		{"name", "Name"}, {"public", "Public"}, {"total", "Total, units"}, {"per_user", "A user may hold, units"},
		{"per_user_per_day", "A user may take a day, units"}, {"limits", "Other limits"}, {"low_stock_at", "Stock is low at, units"},
		{"starts_at", "Starts"}, {"ends_at", "Ends"},
	}
	packetFields = []field{
		{"count", "Packets"}, {"amount", "Amount of all together"}, {"split", "Split"}, {"min", "Smallest"}, {"max", "Largest"},
		{"release_at", "No one takes one before"},
	}
	// fixed are a campaign's fields that can't be changed.
	fixed = []string{"id", "kind", "time_zone", "hold_for", "hold_max", "currency", "sender_id", "shards", "shard_by"}

	numbers = []string{"total", "per_user", "per_user_per_day", "low_stock_at", "shards", "count"}
	times   = []string{"starts_at", "ends_at", "release_at"} // in the campaign's zone
	amounts = []string{"amount", "min", "max"}               // in the campaign's currency
)

// twiceName selects one of two moments for times that the clocks show
// twice: first or second; "" refuses them.
const twiceName = "twice"

// parseField converts a field's text to the API's value. An empty time is
// nil.
func parseField(name, text string, zone *time.Location, currency, twice string) (any, *wire.ProblemJSON) {
	switch {
	case name == "limits":
		return parseLimits(name, text)
	case name == "public" && text == "":
		return false, nil
	case slices.Contains(numbers, name):
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, invalid(name, "must be a whole number of 0 or more, not “"+text+"”")
		}
		return n, nil
	case slices.Contains(amounts, name):
		n, ok := parseMoney(text, currency)
		if !ok {
			return nil, invalid(name, "must be an amount such as "+money(125, currency)+" without its currency, not “"+text+"”")
		}
		return n, nil
	case slices.Contains(times, name):
		if text == "" {
			return nil, nil
		}
		at, err := calendar.ParseLocal(text, zone, calendar.Twice(twice))
		if err != nil {
			return nil, invalid(name, err.Error())
		}
		return models.NewTime(at), nil
	}
	return text, nil
}

func wordsOf(name, text, currency string) string {
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case text == "":
		return "none"
	case slices.Contains(numbers, name) && err == nil:
		return number(n)
	case slices.Contains(amounts, name):
		minor, _ := parseMoney(text, currency)
		return money(minor, currency)
	case slices.Contains(times, name):
		return strings.Replace(text, "T", " ", 1)
	}
	return text
}

// zoneOf is a campaign's zone. UTC replaces a name that only an older
// version's machine knew.
func zoneOf(k *models.CampaignJSON) *time.Location {
	zone, err := calendar.LoadZone(k.TimeZone)
	if err != nil {
		return time.UTC
	}
	return zone
}

func valuesOf(k *models.CampaignJSON) map[string]string {
	zone := zoneOf(k)
	local := func(t *models.Time) string {
		if t == nil {
			return ""
		}
		return calendar.FormatLocal(t.Time, zone)
	}
	n := func(units int64) string { return strconv.FormatInt(units, 10) }
	return map[string]string{
		"id": k.ID, "kind": string(k.Kind), "name": k.Name, "public": k.Public, "total": n(k.Total), "per_user": n(k.PerUser),
		"per_user_per_day": n(k.PerUserPerDay), "limits": limitsOf(k, false), "low_stock_at": n(k.LowStockAt), "starts_at": local(k.StartsAt),
		"ends_at": local(k.EndsAt), "time_zone": k.TimeZone, "hold_for": k.HoldFor, "hold_max": k.HoldMax,
		"currency": k.Currency, "sender_id": k.SenderID,
		"shards": n(int64(max(1, k.Shards))), "shard_by": k.ShardBy,
	}
}

// limitsOf writes a campaign's limits: all, or those without their own field.
func limitsOf(k *models.CampaignJSON, all bool) string {
	var texts []string
	for _, l := range k.Limits {
		if all || l.By != models.ByUser || l.Per != models.PerAll && l.Per != models.PerDay {
			texts = append(texts, l.String())
		}
	}
	return strings.Join(texts, ", ")
}

func parseLimits(name, text string) ([]models.LimitJSON, *wire.ProblemJSON) {
	all := []models.LimitJSON{}
	for one := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		l, err := models.ParseLimit(strings.TrimSpace(one))
		if err != nil {
			return nil, invalid(name, strings.TrimPrefix(err.Error(), models.ErrID.Error()+": "))
		}
		all = append(all, l)
	}
	return all, nil
}

// parseMoney reads an amount such as 1.25 as minor units.
func parseMoney(text, code string) (minor int64, ok bool) {
	digits, _ := models.MinorDigits(code) // without a currency, minor units are typed
	whole, part, _ := strings.Cut(text, ".")
	if len(part) > digits || whole == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(whole+part+strings.Repeat("0", digits-len(part)), 10, 62)
	return int64(n), err == nil
}

type newPage struct {
	Refused *wire.ProblemJSON
	Values  map[string]string
}

// getNew shows the form of a new campaign, filled in from the campaign of
// the query.
func (c *Console) getNew(w http.ResponseWriter, r *http.Request, s *session) {
	page := newPage{Values: map[string]string{}}
	if like := r.URL.Query().Get("like"); like != "" {
		var k models.CampaignJSON
		if _, p := c.ask(r, http.MethodGet, campaignPath(like), nil, &k); p != nil {
			c.show(w, s, p.Status, "refused", *p)
			return
		}
		page.Values = valuesOf(&k)
		page.Values["id"] = ""
	}
	c.show(w, s, http.StatusOK, "new", page)
}

// postNew creates the campaign. Empty fields are omitted, and so is a
// packet campaign's total, which follows from its packets.
func (c *Console) postNew(w http.ResponseWriter, r *http.Request, s *session) {
	body := map[string]any{}
	page := newPage{Values: map[string]string{}}
	zone, err := calendar.LoadZone(cmp.Or(strings.TrimSpace(r.PostFormValue("time_zone")), "UTC"))
	if err != nil {
		page.Refused = invalid("time_zone", "must be an IANA zone such as Europe/Berlin")
		zone = time.UTC
	}
	names := slices.Clone(fixed)
	for _, f := range changeable {
		names = append(names, f.Name)
	}
	for _, name := range names {
		text := strings.TrimSpace(r.PostFormValue(name))
		page.Values[name] = text
		if text == "" || name == "total" && r.PostFormValue("kind") == string(models.KindPacket) {
			continue
		}
		value, p := parseField(name, text, zone, "", r.PostFormValue(twiceName))
		body[name] = value
		page.Refused = cmp.Or(page.Refused, p)
	}
	if page.Refused == nil {
		_, page.Refused = c.ask(r, http.MethodPost, "/v1/campaigns", body, nil)
	}
	if page.Refused != nil {
		c.show(w, s, page.Refused.Status, "new", page)
		return
	}
	http.Redirect(w, r, Path+"/campaigns/"+url.PathEscape(page.Values["id"])+"?done=new", http.StatusSeeOther)
}
