package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/models"
)

// doneWords say what was done, on the page that follows.
var doneWords = map[string]string{
	"open": "The campaign is open.", "pause": "The campaign is paused.", "restock": "The total is changed.",
	"limits": "The limits are changed.", "close": "The campaign is closed.",
}

// repairTimeout bounds a comparison or a repair: a million rows take seconds.
const repairTimeout = 25 * time.Second

// action is what somebody is about to do to a campaign.
type action struct {
	Campaign models.CampaignJSON
	Verb     string
	Title    string   // what the button says
	Effects  []string // what will happen
	Fields   []field  // what the form sends besides
	ETag     string   // of the campaign that the effects were told of
	Refused  *wire.ProblemJSON
	Verdict  *Verdict // of a comparison or a repair
	Danger   bool     // it can't be undone: the id of the campaign has to be typed

	claimed string // how many units are, in a sentence; "": not known
}

type field struct{ Name, Value string }

func (c *Console) getAction(w http.ResponseWriter, r *http.Request, s *session) {
	if !s.who.Acts {
		c.refuse(w, r, s, wire.Refuse(wire.CodeForbidden))
		return
	}
	a, p := c.prepare(r, r.URL.Query())
	if p != nil {
		c.show(w, s, p.Status, "refused", *p)
		return
	}
	c.show(w, s, http.StatusOK, "act", a)
}

// prepare says what an action would do.
func (c *Console) prepare(r *http.Request, given url.Values) (*action, *wire.ProblemJSON) {
	a := &action{Verb: r.PathValue("verb")}
	header, p := c.ask(r, "GET", campaignPath(r.PathValue("id")), nil, &a.Campaign)
	if p != nil {
		return nil, p
	}
	a.ETag = header.Get("ETag")
	var stock models.Stock
	if a.Verb == "restock" {
		if _, p := c.ask(r, http.MethodGet, campaignPath(a.Campaign.ID)+"/stock", nil, &stock); p == nil {
			a.claimed = plural(stock.Claimed, "unit") + " claimed now. "
		}
	}
	if !a.describe(given) {
		return nil, new(problemOf(wire.Refuse(wire.CodeNotFound)))
	}
	for _, f := range a.Fields {
		if n, err := strconv.ParseInt(strings.TrimSpace(f.Value), 10, 64); err != nil || n < 0 {
			return nil, new(problemOf(wire.Invalid(f.Name, "must be a whole number of 0 or more, not “"+f.Value+"”")))
		}
	}
	if c := &a.Campaign; a.Verb == "close" && c.Status == models.StatusClosed {
		return nil, new(problemOf(&wire.Problem{Code: wire.CodeClosed, Detail: "The campaign " + c.ID + " is closed already."}))
	}
	return a, nil
}

// describe fills in what will happen; false when there is no such action.
func (a *action) describe(given url.Values) bool {
	k := &a.Campaign
	switch a.Verb {
	case "open":
		a.Title = "Open " + k.ID
		a.Effects = []string{"The next claim is taken again, by every API process.", "Limits, window and stock stay as they are."}
	case "pause":
		a.Title = "Pause " + k.ID
		a.Effects = []string{
			"Every new claim is refused as paused until you open the campaign again.",
			"Claims that were made stay, and can be redeemed and released.",
		}
	case "close":
		a.Danger = true
		a.Title = "Close " + k.ID + " for ever"
		a.Effects = []string{"No claim is taken any more. A closed campaign can't be opened again."}
		if k.Kind == models.KindPacket {
			a.Effects = append(a.Effects, "What nobody took goes back to the sender, once, when every claim is in MySQL.")
		}
	case "restock":
		a.Title = "Change the total of " + k.ID
		a.Fields = []field{{"total", given.Get("total")}}
		a.Effects = []string{"The total goes from " + number(k.Total) + " to " + number(units(given.Get("total"))) + " units, from the next claim on.",
			a.claimed + "A total below what is claimed stops new claims and takes nothing back."}
	case "limits":
		a.describeLimits(given)
	case "reconcile":
		a.Title = "Compare the books of " + k.ID
		a.Effects = []string{"What Redis and MySQL say is held against each other, down to each user. Nothing is changed."}
	case "repair":
		a.Title = "Repair the books of " + k.ID
		a.Effects = []string{"What differs is put right in the direction of the evidence, and each change is recorded.",
			"Parked claims that can be written by now are written. No claim that was answered is given up."}
	default:
		return false
	}
	return true
}

// limits are the fields of a campaign that the form of limits sends, with their words.
var limits = []struct{ name, words string }{
	{"per_user", "units a user may hold"}, {"per_user_per_day", "units a user may take a day"},
	{"low_stock_at", "units left at which stock is low"},
}

func (a *action) describeLimits(given url.Values) {
	a.Title = "Change the limits of " + a.Campaign.ID
	for i, now := range []int64{a.Campaign.PerUser, a.Campaign.PerUserPerDay, a.Campaign.LowStockAt} {
		l := limits[i]
		value := strings.TrimSpace(given.Get(l.name))
		if value == "" || value == strconv.FormatInt(now, 10) {
			continue
		}
		a.Fields = append(a.Fields, field{l.name, value})
		a.Effects = append(a.Effects, "From "+number(now)+" to "+number(units(value))+" "+l.words+"; 0 is none.")
	}
	if len(a.Effects) == 0 {
		a.Effects = []string{"Nothing: no limit is different from what it is."}
	}
	a.Effects = append(a.Effects, "In force for the next claim. Claims that were made stay.")
}

// units reads a number that prepare has checked.
func units(text string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n
}

func (c *Console) postAction(w http.ResponseWriter, r *http.Request, s *session) {
	a, p := c.prepare(r, r.PostForm)
	if p == nil && a.Danger && strings.TrimSpace(r.PostFormValue("confirm")) != a.Campaign.ID {
		p = new(problemOf(wire.Invalid("confirm", "must be the id of the campaign, "+a.Campaign.ID)))
	}
	if p == nil {
		p = c.do(r, a)
	}
	switch {
	case a == nil:
		c.show(w, s, p.Status, "refused", *p)
	case p != nil:
		a.Refused = p
		c.show(w, s, p.Status, "act", a)
	case a.Verdict != nil:
		c.show(w, s, http.StatusOK, "act", a)
	default:
		http.Redirect(w, r, Path+"/campaigns/"+url.PathEscape(a.Campaign.ID)+"?done="+a.Verb, http.StatusSeeOther)
	}
}

// do does it, by the API's own routes where there is one.
func (c *Console) do(r *http.Request, a *action) (p *wire.ProblemJSON) {
	path := campaignPath(a.Campaign.ID)
	change := func(body map[string]any) {
		_, p = c.ask(r, "PATCH", path, body, nil, "If-Match", r.PostFormValue("etag"))
	}
	switch a.Verb {
	case "open":
		change(map[string]any{"status": models.StatusOpen})
	case "pause":
		change(map[string]any{"status": models.StatusPaused})
	case "restock", "limits":
		body := map[string]any{}
		for _, f := range a.Fields {
			body[f.Name] = units(f.Value)
		}
		change(body)
	case "close":
		_, p = c.ask(r, "POST", path+"/close", nil, nil)
	case "reconcile":
		p = c.look(r, a, c.cfg.Books.Compare)
	case "repair":
		p = c.look(r, a, c.cfg.Books.Repair)
	}
	return p
}

// look compares or repairs, which no route of the API does: what it needs is checked here.
func (c *Console) look(r *http.Request, a *action, run func(context.Context, string) (Verdict, error)) *wire.ProblemJSON {
	if p := c.cfg.MayAct(r); p != nil {
		return new(problemOf(p))
	}
	ctx, cancel := context.WithTimeout(r.Context(), repairTimeout)
	defer cancel()
	verdict, err := run(ctx, a.Campaign.ID)
	if err != nil {
		c.cfg.Logger.WarnContext(r.Context(), "a comparison or repair from the console failed",
			slog.String("verb", a.Verb), slog.String("campaign_id", a.Campaign.ID), slog.Any("error", err))
		return new(problemOf(&wire.Problem{
			Code:   wire.CodeUnavailable,
			Detail: "It did not come to an end: " + err.Error() + ". What was repaired until then is recorded. Try again.",
		}))
	}
	a.Verdict = &verdict
	return nil
}
