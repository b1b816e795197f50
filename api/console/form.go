package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/models"
)

// The kinds of formField.
const (
	textKind   = "text"
	numberKind = "number"
	timeKind   = "datetime-local" // in the campaign's zone
	moneyKind  = "money"          // in the campaign's currency
	choiceKind = "choice"
	twiceKind  = "twice"  // which of two moments times are, where the clocks show them twice
	limitsKind = "limits" // subject:window:units, separated by commas
)

// formField is a field of a request as forms have it. Its name is that of the API.
type formField struct {
	Name, Label, Kind string

	Hint     string
	Choices  []string
	Required bool
	Live     bool // may be changed while claims flow
	Currency string
}

// campaignFields are those of a campaign that is created or, if they are live, changed.
var campaignFields = []formField{
	{Name: "id", Label: "Id", Kind: textKind, Required: true, Hint: "1 to 64 letters, digits, dots, hyphens and underscores"},
	{Name: "kind", Label: "Kind", Kind: choiceKind, Choices: []string{"coupon", "packet"}},
	{Name: "name", Label: "Name", Kind: textKind, Hint: "for people"},
	{Name: "total", Label: "Total, units", Kind: numberKind, Live: true, Hint: "of packets it comes from the packets"},
	{Name: "per_user", Label: "A user may hold, units", Kind: numberKind, Live: true, Hint: "0 is no limit"},
	{Name: "per_user_per_day", Label: "A user may take a day, units", Kind: numberKind, Live: true, Hint: "0 is no limit"},
	{Name: "limits", Label: "Other limits", Kind: limitsKind, Live: true,
		Hint: "such as device:day:1, user:hour:2; by user or a subject of claims, per all, hour, day, week or month"},
	{Name: "low_stock_at", Label: "Stock is low at, units", Kind: numberKind, Live: true, Hint: "0 is never"},
	{Name: "starts_at", Label: "Starts", Kind: timeKind, Live: true, Hint: "in the zone of the campaign; empty is at once"},
	{Name: "ends_at", Label: "Ends", Kind: timeKind, Live: true, Hint: "in the zone of the campaign; empty is never"},
	twiceField,
	{Name: "time_zone", Label: "Time zone", Kind: textKind, Hint: "such as Europe/Berlin; empty is UTC"},
	{Name: "hold_for", Label: "A claim is held for", Kind: textKind, Hint: "such as 15m, of coupons; empty is for ever"},
	{Name: "currency", Label: "Currency", Kind: textKind, Hint: "such as EUR, of packets"},
	{Name: "sender_id", Label: "Sender", Kind: textKind, Hint: "of packets: who gets what no one took"},
	{Name: "shards", Label: "Shards", Kind: numberKind, Hint: "empty is 1; more for what is too hot for one Redis primary"},
}

// packetFields are those of packets that are made from an amount.
var packetFields = []formField{
	{Name: "count", Label: "Packets", Kind: numberKind, Required: true},
	{Name: "amount", Label: "Amount of all together", Kind: moneyKind, Required: true},
	{Name: "split", Label: "Split", Kind: choiceKind, Choices: []string{"double_mean", "random_cut", "even"}},
	{Name: "min", Label: "Smallest", Kind: moneyKind, Hint: "empty is the smallest unit"},
	{Name: "max", Label: "Largest", Kind: moneyKind, Hint: "empty is no bound"},
	{Name: "release_at", Label: "No one takes one before", Kind: timeKind, Hint: "in the zone of the campaign; empty is at once"},
	twiceField,
}

// twiceField goes with the times of a form.
var twiceField = formField{ //nolint:gochecknoglobals // nothing writes to it
	Name: "twice", Label: "A time that the clocks show twice is", Kind: twiceKind, Live: true,
	Choices: []string{"refused", string(models.TwiceFirst), string(models.TwiceSecond)}, Hint: "on the day when the clocks are set back"}

// input is a field with what it holds.
type input struct {
	formField

	Value string
}

// inputs are the fields of a form, filled in.
func inputs(fields []formField, values map[string]string, want func(*formField) bool) (all []input) {
	for i := range fields {
		if f := &fields[i]; want(f) {
			all = append(all, input{*f, values[f.Name]})
		}
	}
	return all
}

// changeInputs are the fields of a campaign that may be changed.
func changeInputs(k *models.CampaignJSON) []input {
	return inputs(campaignFields, valuesOf(k), func(f *formField) bool {
		return f.Live && (f.Name != "total" || k.Kind != models.KindPacket)
	})
}

// packetInputs are the fields of packets for a campaign.
func packetInputs(k *models.CampaignJSON) []input {
	all := inputs(packetFields, nil, func(*formField) bool { return true })
	for i := range all {
		all[i].Currency = k.Currency
		if all[i].Kind == moneyKind {
			all[i].Label += ", " + cmp.Or(k.Currency, "minor units")
		}
	}
	return all
}

// zoneOf is the zone of a campaign. UTC stands for a name that only the machine of an older version
// knew.
func zoneOf(k *models.CampaignJSON) *time.Location {
	zone, err := models.LoadZone(k.TimeZone)
	if err != nil {
		return time.UTC
	}
	return zone
}

// valuesOf are the fields of a campaign as forms show them.
func valuesOf(k *models.CampaignJSON) map[string]string {
	zone := zoneOf(k)
	var sent map[string]any
	if text, err := json.Marshal(k); err == nil { // a campaign always marshals
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		_ = decoder.Decode(&sent)
	}
	values := map[string]string{}
	for i := range campaignFields {
		f := &campaignFields[i]
		value, there := sent[f.Name]
		switch {
		case !there && f.Live && f.Kind == numberKind:
			values[f.Name] = "0"
		case !there:
		case f.Kind == limitsKind:
			values[f.Name] = otherLimits(k)
		case f.Kind == timeKind:
			at, _ := time.Parse(time.RFC3339, fmt.Sprint(value))
			values[f.Name] = models.FormatLocal(at, zone)
		default:
			values[f.Name] = fmt.Sprint(value)
		}
	}
	return values
}

// otherLimits are the limits that have no field of their own.
func otherLimits(k *models.CampaignJSON) string {
	var all []string
	for _, l := range k.Limits {
		if l.By != models.ByUser || l.Per != models.PerAll && l.Per != models.PerDay {
			all = append(all, l.String())
		}
	}
	return strings.Join(all, ", ")
}

// parseLimits reads what otherLimits writes.
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

// parse reads what was typed into a field as the API takes it; nil is an empty time.
func (f *formField) parse(text string, zone *time.Location, twice string) (any, *wire.ProblemJSON) {
	if f.Kind == limitsKind {
		return parseLimits(f.Name, text)
	}
	if text == "" && !f.Required && (!f.Live || f.Kind != numberKind) {
		return nil, nil
	}
	switch f.Kind {
	case numberKind:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, invalid(f.Name, "must be a whole number of 0 or more, not “"+text+"”")
		}
		return n, nil
	case moneyKind:
		n, ok := parseMoney(text, f.Currency)
		if !ok {
			return nil, invalid(f.Name, "must be an amount such as "+money(125, f.Currency)+" without its currency, not “"+text+"”")
		}
		return n, nil
	case timeKind:
		at, err := models.ParseLocal(f.Name, text, zone, models.Twice(twice))
		if err != nil {
			return nil, invalid(f.Name, strings.TrimPrefix(err.Error(), f.Name+": "))
		}
		return models.NewTime(at), nil
	}
	return text, nil
}

// words show what a field holds, for people.
func (f *formField) words(text string) string {
	switch {
	case text == "":
		return "none"
	case f.Kind == numberKind:
		n, _ := strconv.ParseInt(text, 10, 64) // parse has read it
		return number(n)
	case f.Kind == moneyKind:
		n, _ := parseMoney(text, f.Currency)
		return money(n, f.Currency)
	}
	return strings.Replace(text, "T", " ", map[bool]int{true: 1}[f.Kind == timeKind])
}

// parseMoney reads an amount as people write it, such as 1.25, as minor units.
func parseMoney(text, code string) (minor int64, ok bool) {
	digits, _ := models.MinorDigits(code) // without a currency, minor units are typed
	whole, part, _ := strings.Cut(text, ".")
	if len(part) > digits || whole == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(whole+part+strings.Repeat("0", digits-len(part)), 10, 62)
	return int64(n), err == nil
}

// newPage is the form of a campaign to be created.
type newPage struct {
	Refused *wire.ProblemJSON
	Inputs  []input
}

func newInputs(values map[string]string) []input {
	return inputs(campaignFields, values, func(*formField) bool { return true })
}

// getNew shows the form of a new campaign, like the campaign that the query names.
func (c *Console) getNew(w http.ResponseWriter, r *http.Request, s *session) {
	values := map[string]string{}
	if like := r.URL.Query().Get("like"); like != "" {
		var k models.CampaignJSON
		if _, p := c.ask(r, http.MethodGet, campaignPath(like), nil, &k); p != nil {
			c.show(w, s, p.Status, "refused", *p)
			return
		}
		values = valuesOf(&k)
		delete(values, "id")
		if k.Kind == models.KindPacket {
			delete(values, "total")
		}
	}
	c.show(w, s, http.StatusOK, "new", newPage{Inputs: newInputs(values)})
}

func (c *Console) postNew(w http.ResponseWriter, r *http.Request, s *session) {
	body := map[string]any{}
	values := map[string]string{}
	p := c.readNew(r.PostForm, values, body)
	if p == nil {
		_, p = c.ask(r, http.MethodPost, "/v1/campaigns", body, nil)
	}
	if p != nil {
		c.show(w, s, p.Status, "new", newPage{p, newInputs(values)})
		return
	}
	http.Redirect(w, r, Path+"/campaigns/"+url.PathEscape(values["id"])+"?done=new", http.StatusSeeOther)
}

// readNew reads the form of a new campaign into a body for the API. What is empty is left out.
func (c *Console) readNew(form url.Values, values map[string]string, body map[string]any) (p *wire.ProblemJSON) {
	zone, err := models.LoadZone(cmp.Or(strings.TrimSpace(form.Get("time_zone")), "UTC"))
	if err != nil {
		zone = time.UTC
		p = invalid("time_zone", "must be an IANA zone such as Europe/Berlin")
	}
	for i := range campaignFields {
		f := &campaignFields[i]
		text := strings.TrimSpace(form.Get(f.Name))
		values[f.Name] = text
		if text == "" || f.Kind == twiceKind {
			continue
		}
		value, wrong := f.parse(text, zone, form.Get(twiceField.Name))
		body[f.Name] = value
		if p == nil {
			p = wrong
		}
	}
	return p
}
