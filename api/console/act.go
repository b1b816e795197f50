package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"dibs/api/console/form"
	"dibs/api/console/signin"
	"dibs/api/console/words"
	"dibs/api/wire"
	"dibs/models"
)

var doneWords = map[string]string{
	"new": "The campaign is created.", "open": "The campaign is open.", "pause": "The campaign is paused.", "edit": "The campaign is changed.",
	"restock": "The total is changed.", "packets": "The packets are added.", "close": "The campaign is closed.",
	"redeem": "The claim is redeemed.", "release": "The claim is released.", "reopen": "The redeem is taken back.",
	"extend": "The hold lasts longer.",
	"replay": "The replay is asked for. Load the page again in some seconds.", "discard": "The message is discarded.",
}

// repairTimeout bounds a comparison or a repair. A million rows take seconds.
const repairTimeout = 25 * time.Second

type action struct {
	Verb    string
	Title   string   // label of the button
	Effects []string // what will happen
	Fields  []field  // other fields that the form sends
	ETag    string   // of the campaign that the effects describe
	Back    string   // the page it started from
	// text to type because the action can't be undone, usually the
	// campaign's id; "": none
	Confirm string

	Refused *wire.ProblemJSON
	Verdict *Verdict // of a comparison or a repair

	run func() *wire.ProblemJSON
}

type field struct{ Name, Value string }

// preparer describes an action by the fields of its form.
type preparer func(r *http.Request, given url.Values) (*action, *wire.ProblemJSON)

func (c *Console) forActors(next signin.Handler) signin.Handler {
	return func(w http.ResponseWriter, r *http.Request, s *signin.Session) {
		if p := c.cfg.MayAct(r); p != nil {
			c.refuse(w, r, s, p)
			return
		}
		next(w, r, s)
	}
}

// acting returns an action's handlers: GET describes it, POST does it.
func (c *Console) acting(prepare preparer) (get, post signin.Handler) {
	get = c.forActors(func(w http.ResponseWriter, r *http.Request, s *signin.Session) {
		a, p := prepare(r, r.URL.Query())
		if p != nil {
			c.show(w, s, p.Status, "refused", *p)
			return
		}
		c.show(w, s, http.StatusOK, "act", a)
	})
	post = c.forActors(func(w http.ResponseWriter, r *http.Request, s *signin.Session) {
		a, p := prepare(r, r.PostForm)
		if p == nil && a.Confirm != "" && strings.TrimSpace(r.PostFormValue("confirm")) != a.Confirm {
			p = invalid("confirm", "must be "+a.Confirm)
		}
		if p == nil {
			p = a.run()
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
			http.Redirect(w, r, a.Back+"?done="+a.Verb, http.StatusSeeOther)
		}
	})
	return get, post
}

func (c *Console) sends(r *http.Request, method, path string, body any, headers ...string) func() *wire.ProblemJSON {
	return func() *wire.ProblemJSON {
		_, p := c.ask(r, method, path, body, nil, headers...)
		return p
	}
}

func invalid(field, reason string) *wire.ProblemJSON {
	return new(wire.Invalid(field, reason).JSON())
}

func (c *Console) prepareCampaign(r *http.Request, given url.Values) (*action, *wire.ProblemJSON) {
	var k models.CampaignJSON
	header, p := c.ask(r, http.MethodGet, campaignPath(r.PathValue("id")), nil, &k)
	if p != nil {
		return nil, p
	}
	path := campaignPath(k.ID)
	a := &action{Verb: r.PathValue("verb"), Back: Path + "/campaigns/" + url.PathEscape(k.ID), ETag: header.Get("ETag")}
	patch := func(body map[string]any) {
		a.run = c.sends(r, http.MethodPatch, path, body, "If-Match", r.PostFormValue("etag"))
	}
	switch a.Verb {
	case "open":
		a.Title = "Open " + k.ID
		a.Effects = []string{"The next claim is taken again, by every API process.", "Limits, window and stock stay as they are."}
		patch(map[string]any{"status": models.StatusOpen})
	case "pause":
		a.Title = "Pause " + k.ID
		a.Effects = []string{
			"Every new claim is refused as paused until you open the campaign again.",
			"Claims that were made stay, and can be redeemed and released.",
		}
		// Without If-Match: what someone else changed has to stop, too.
		a.run = c.sends(r, http.MethodPatch, path, map[string]any{"status": models.StatusPaused})
	case "close":
		if k.Status == models.StatusClosed {
			return nil, new((&wire.Problem{Code: wire.CodeClosed, Detail: "The campaign " + k.ID + " is closed already."}).JSON())
		}
		a.Confirm = k.ID
		a.Title = "Close " + k.ID + " for ever"
		a.Effects = []string{"No claim is taken any more. A closed campaign can't be opened again."}
		if k.Kind == models.KindPacket {
			a.Effects = append(a.Effects, "What no one took returns to the sender, once, when every claim is in MySQL.")
		}
		a.run = c.sends(r, http.MethodPost, path+"/close", nil)
	case "restock", "edit":
		body, p := c.describeChange(r, a, &k, given)
		if p != nil {
			return nil, p
		}
		patch(body)
	case "packets":
		body, p := a.describePackets(&k, given)
		if p != nil {
			return nil, p
		}
		a.run = c.sends(r, http.MethodPost, path+"/packets", body, "Idempotency-Key", given.Get("key"))
	case "reconcile", "repair":
		c.describeBooks(r, a, k.ID)
	default:
		return nil, new(wire.Refuse(wire.CodeNotFound).JSON())
	}
	return a, nil
}

// describeChange describes a change of fields, and returns the request body
// for it.
func (c *Console) describeChange(r *http.Request, a *action, k *models.CampaignJSON, given url.Values) (map[string]any, *wire.ProblemJSON) {
	body := map[string]any{}
	now := form.Values(k)
	a.Title = "Change " + k.ID
	twice := a.keepTwice(given)
	for _, f := range form.Changeable {
		if !given.Has(f.Name) || f.Name == "total" && k.Kind == models.KindPacket {
			continue
		}
		text := strings.TrimSpace(given.Get(f.Name))
		if text == now[f.Name] {
			continue
		}
		value, p := form.Parse(f.Name, text, form.Zone(k), k.Currency, twice)
		if p != nil {
			return nil, new(p.JSON())
		}
		body[f.Name] = value
		a.Fields = append(a.Fields, field{f.Name, text})
		a.Effects = append(a.Effects,
			f.Label+": from "+form.Words(f.Name, now[f.Name], k.Currency)+" to "+form.Words(f.Name, text, k.Currency)+".")
	}
	if _, is := body["limits"]; is { // the list replaces all limits
		for name, units := range map[string]int64{"per_user": k.PerUser, "per_user_per_day": k.PerUserPerDay} {
			if _, is := body[name]; !is && units > 0 {
				body[name] = units
			}
		}
	}
	if total, is := body["total"].(int64); is {
		a.Effects = append(a.Effects, c.describeClaimed(r, k.ID, total))
	}
	if len(body) == 0 {
		a.Effects = []string{"Nothing: no field is different from what it is."}
	}
	a.Effects = append(a.Effects, "In force for the next claim. Claims that were made stay.")
	return body, nil
}

func (a *action) keepTwice(given url.Values) (twice string) {
	twice = given.Get(form.Twice)
	if twice != "" {
		a.Fields = append(a.Fields, field{form.Twice, twice})
		a.Effects = append(a.Effects, "A time that the clocks show twice is the "+twice+".")
	}
	return twice
}

func (c *Console) describeClaimed(r *http.Request, id string, total int64) string {
	var stock models.Stock
	_, p := c.ask(r, http.MethodGet, campaignPath(id)+"/stock", nil, &stock)
	switch {
	case p != nil:
		return "How many units are claimed is not known now. A total below that stops new claims and takes nothing back."
	case total < stock.Claimed:
		return words.Plural(stock.Claimed, "unit") + " claimed now, which is more: new claims are refused as sold out, and nothing is taken back."
	}
	return words.Plural(stock.Claimed, "unit") + " claimed now."
}

// describePackets describes the packets to add, and returns the request
// body. The key makes sending the form twice harmless.
func (a *action) describePackets(k *models.CampaignJSON, given url.Values) (map[string]any, *wire.ProblemJSON) {
	a.Title = "Add packets to " + k.ID
	a.Confirm = k.ID
	body := map[string]any{}
	key := given.Get("key")
	if key == "" {
		key = rand.Text()
	}
	a.Fields = []field{{"key", key}}
	twice := a.keepTwice(given)
	for _, f := range form.Packets {
		text := strings.TrimSpace(given.Get(f.Name))
		if text == "" && f.Name != "count" && f.Name != "amount" {
			continue
		}
		value, p := form.Parse(f.Name, text, form.Zone(k), k.Currency, twice)
		if p != nil {
			return nil, new(p.JSON())
		}
		body[f.Name] = value
		a.Fields = append(a.Fields, field{f.Name, text})
		a.Effects = append(a.Effects, f.Label+": "+form.Words(f.Name, text, k.Currency)+".")
	}
	a.Effects = append(a.Effects, "The packets can't be taken back. What no one took when the campaign is closed returns to the sender.")
	return body, nil
}

func (c *Console) describeBooks(r *http.Request, a *action, id string) {
	if a.Verb == "reconcile" {
		a.Title = "Compare the books of " + id
		a.Effects = []string{"What Redis and MySQL say is held against each other, down to each user. Nothing is changed."}
		a.run = func() *wire.ProblemJSON { return c.runOnBooks(r, a, id, c.cfg.Books.Compare) }
		return
	}
	a.Confirm = id
	a.Title = "Repair the books of " + id
	a.Effects = []string{"What differs is put right in the direction of the evidence, and each change is recorded.",
		"Parked claims that can be written by now are written. No claim that was answered is given up."}
	a.run = func() *wire.ProblemJSON { return c.runOnBooks(r, a, id, c.cfg.Books.Repair) }
}

// runOnBooks compares or repairs. The API has no route for it.
func (c *Console) runOnBooks(r *http.Request, a *action, id string, run func(context.Context, string) (Verdict, error)) *wire.ProblemJSON {
	ctx, cancel := context.WithTimeout(r.Context(), repairTimeout)
	defer cancel()
	verdict, err := run(ctx, id)
	if err != nil {
		c.cfg.Logger.WarnContext(r.Context(), "a comparison or repair from the console failed",
			slog.String("verb", a.Verb), slog.String("campaign_id", id), slog.Any("error", err))
		return new((&wire.Problem{
			Code:   wire.CodeUnavailable,
			Detail: "It did not come to an end: " + err.Error() + ". What was repaired until then is recorded. Try again.",
		}).JSON())
	}
	a.Verdict = &verdict
	return nil
}

func (c *Console) prepareClaim(r *http.Request, given url.Values) (*action, *wire.ProblemJSON) {
	var claim models.Claim
	path := "/v1/claims/" + url.PathEscape(r.PathValue("id"))
	if _, p := c.ask(r, http.MethodGet, path, nil, &claim); p != nil {
		return nil, p
	}
	a := &action{Verb: r.PathValue("verb"), Back: Path + "/claims/" + claim.ID, Confirm: claim.CampaignID}
	name := "reason"
	body := map[string]any{}
	switch a.Verb {
	case "redeem":
		name = "order_id"
		a.Title = "Redeem the claim of " + claim.UserID
		a.Effects = []string{"The claim belongs to the order “" + given.Get(name) + "”, and can't be released until the redeem is taken back."}
	case "reopen":
		order := claim.OrderID
		if given.Has("order_id") { // what was shown, also if another order redeemed it since
			order = given.Get("order_id")
		}
		body["order_id"] = order
		a.Fields = []field{{"order_id", order}}
		a.Title = "Take back the redeem of " + claim.UserID
		a.Effects = []string{"The claim does not belong to the order “" + order + "” any more: it can be " +
			"redeemed by another, or released. " +
			"Its hold starts again, if the campaign has one.", "The same can't be done again for this order."}
	case "extend":
		name = "by"
		a.Title = "Extend the hold of " + claim.UserID
		a.Effects = []string{"The hold lasts " + given.Get(name) + " longer, but no longer than the campaign allows."}
	case "release":
		a.Title = "Release the claim of " + claim.UserID
		a.Effects = []string{words.Plural(claim.Quantity, "unit") + " can be claimed again, by anybody, and the user's limits get them back.",
			"A claim that is released can't be redeemed any more."}
	default:
		return nil, new(wire.Refuse(wire.CodeNotFound).JSON())
	}
	if text := strings.TrimSpace(given.Get(name)); text != "" {
		body[name] = text
		a.Fields = append(a.Fields, field{name, text})
	}
	var headers []string
	if a.Verb == "extend" { // sending the form twice extends once
		key := cmp.Or(given.Get("key"), rand.Text())
		a.Fields = append(a.Fields, field{"key", key})
		headers = []string{"Idempotency-Key", key}
	}
	a.run = c.sends(r, http.MethodPost, path+"/"+a.Verb, body, headers...)
	return a, nil
}
