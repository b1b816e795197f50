package console

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dibs/api/console/health"
	"dibs/api/console/signin"
	"dibs/api/console/words"
	"dibs/api/wire"
	"dibs/models"
	"dibs/models/stored"
)

// ParkedMessages are messages that consumer groups couldn't handle.
type ParkedMessages interface {
	// Counts is the number of messages by group.
	Counts(ctx context.Context) (map[string]int64, error)
	// List returns a group's messages, the oldest first.
	List(ctx context.Context, group string, most int) ([]ParkedMessage, error)
	// Replay has the group's processes handle messages again.
	Replay(ctx context.Context, group string, ids []string) error
	// Discard deletes a message permanently. A missing one is no error.
	Discard(ctx context.Context, group, id string) error
}

// ParkedMessage is a message that a group couldn't handle.
type ParkedMessage struct {
	ID, EventID, Reason, Payload string

	At       time.Time
	Attempts int64
	Asked    bool   // a replay is requested but not done yet
	Left     string // why the last replay failed
}

type troublePage struct {
	Done     string
	Acts     bool
	Parked   health.Asked[[]stored.ParkedEvent]
	Messages health.Asked[[]parkedMessages]
	Webhooks health.Asked[[]models.WebhookLag]
	Posts    health.Asked[parkedMessages] // not accepted by endpoints
	Repairs  health.Asked[[]stored.Repair]
}

type parkedMessages struct {
	Group string
	Count int64
	List  []ParkedMessage // the first ones
	Acts  bool
}

// More reports whether List is incomplete.
func (m *parkedMessages) More() bool { return m.Count > int64(len(m.List)) }

// webhooksGroup is the group whose parked messages are in MySQL: posts that
// endpoints didn't accept.
const webhooksGroup = "webhooks"

func (c *Console) messages(ctx context.Context, acts bool) ([]parkedMessages, error) {
	counts, err := c.cfg.Parked.Counts(ctx)
	if err != nil {
		return nil, err
	}
	var all []parkedMessages
	for _, group := range slices.Sorted(maps.Keys(counts)) {
		of := parkedMessages{Group: group, Count: counts[group], Acts: acts}
		if of.Count > 0 {
			of.List, err = c.cfg.Parked.List(ctx, group, 5*recordsMax)
			if err != nil {
				return nil, err
			}
		}
		all = append(all, of)
	}
	return all, nil
}

// prepareParked prepares an action on a group's parked messages: the one
// with the given id, or all that the page lists.
func (c *Console) prepareParked(r *http.Request, given url.Values) (*action, *wire.ProblemJSON) {
	group := r.PathValue("group")
	a := &action{Verb: r.PathValue("verb"), Back: Path + "/trouble"}
	ids := given["id"]
	ctx, cancel := context.WithTimeout(r.Context(), health.Timeout)
	defer cancel()
	list, err := c.cfg.Parked.List(ctx, group, 5*recordsMax)
	if err != nil {
		return nil, new(wire.Refuse(wire.CodeUnavailable).JSON())
	}
	if len(ids) == 0 && a.Verb == "replay" {
		for i := range list {
			ids = append(ids, list[i].ID)
		}
	}
	// An empty or a partial id could be taken for several messages.
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return !slices.ContainsFunc(list, func(m ParkedMessage) bool { return m.ID == id })
	})
	if len(ids) == 0 {
		return nil, new(wire.Refuse(wire.CodeNotFound).JSON())
	}
	for _, id := range ids {
		a.Fields = append(a.Fields, field{"id", id})
	}
	do := func(ctx context.Context) error { return c.cfg.Parked.Replay(ctx, group, ids) }
	switch a.Verb {
	case "replay":
		a.Title = "Replay " + words.Plural(int64(len(ids)), "message") + " of " + group
		a.Effects = []string{
			"A running process of group " + group + " handles the messages once more, within some seconds.",
			"Nothing returns to the claim stream.",
			"What it handles is parked no longer. What it refuses again stays here, with the reason.",
		}
	case "discard":
		if len(ids) > 1 {
			return nil, invalid("id", "must be one message")
		}
		a.Confirm = group
		a.Title = "Discard a message of " + group
		a.Effects = []string{"The message " + ids[0] + " is deleted for good. Group " + group + " never handles it."}
		for i := range list {
			if list[i].ID == ids[0] {
				a.Effects = append(a.Effects, "It says: "+list[i].Payload)
			}
		}
		do = func(ctx context.Context) error { return c.cfg.Parked.Discard(ctx, group, ids[0]) }
	default:
		return nil, new(wire.Refuse(wire.CodeNotFound).JSON())
	}
	a.run = func() *wire.ProblemJSON {
		ctx, cancel := context.WithTimeout(r.Context(), repairTimeout)
		defer cancel()
		if err := do(ctx); err != nil {
			c.cfg.Logger.WarnContext(ctx, "parked messages can't be replayed or discarded", slog.String("group", group), slog.Any("error", err))
			return new((&wire.Problem{Code: wire.CodeUnavailable, Detail: "Redis or MySQL does not answer. Try again."}).JSON())
		}
		return nil
	}
	return a, nil
}

func (c *Console) getTrouble(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	page := troublePage{Done: doneWords[r.URL.Query().Get("done")], Acts: s.Who.Acts}
	var all errgroup.Group
	health.Ask(r.Context(), &all, &page.Parked, func(ctx context.Context) ([]stored.ParkedEvent, error) {
		return c.cfg.Records.Parked(ctx, "", 5*recordsMax)
	})
	health.Ask(r.Context(), &all, &page.Messages, func(ctx context.Context) ([]parkedMessages, error) { return c.messages(ctx, page.Acts) })
	health.Ask(r.Context(), &all, &page.Webhooks, c.cfg.Records.Webhooks)
	health.Ask(r.Context(), &all, &page.Posts, func(ctx context.Context) (parkedMessages, error) {
		list, err := c.cfg.Parked.List(ctx, webhooksGroup, 5*recordsMax)
		return parkedMessages{Group: webhooksGroup, Count: int64(len(list)), List: list, Acts: page.Acts}, err
	})
	health.Ask(r.Context(), &all, &page.Repairs, func(ctx context.Context) ([]stored.Repair, error) {
		return c.cfg.Records.Repairs(ctx, "", 5*recordsMax)
	})
	_ = all.Wait() // each answer has its own error
	c.show(w, s, http.StatusOK, "trouble", &page)
}

type auditLogPage struct {
	Campaign string
	Page     health.Asked[auditPage]
	Next     string // address of the next page; "": none
}

func (c *Console) getAudit(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	page := auditLogPage{Campaign: strings.TrimSpace(r.URL.Query().Get("campaign_id"))}
	q := url.Values{"limit": {"100"}}
	if page.Campaign != "" {
		q.Set("campaign_id", page.Campaign)
	}
	if before := r.URL.Query().Get("cursor"); before != "" {
		q.Set("cursor", before)
	}
	_, p := c.ask(r, http.MethodGet, "/v1/audit?"+q.Encode(), nil, &page.Page.Value)
	if p != nil && p.Status < http.StatusInternalServerError {
		c.show(w, s, p.Status, "refused", *p)
		return
	}
	page.Page.Known = p == nil
	if page.Page.Value.NextCursor != "" {
		q.Set("cursor", page.Page.Value.NextCursor)
		page.Next = Path + "/audit?" + q.Encode()
	}
	c.show(w, s, http.StatusOK, "audit", &page)
}
