package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"

	"dibs/models"
)

type troublePage struct {
	Parked   Asked[[]models.ParkedEvent]
	Messages Asked[map[string]int64]
	Webhooks Asked[[]models.WebhookLag]
	Repairs  Asked[[]models.Repair]
}

func (c *Console) getTrouble(w http.ResponseWriter, r *http.Request, s *session) {
	var page troublePage
	var all errgroup.Group
	ask(r.Context(), &all, &page.Parked, func(ctx context.Context) ([]models.ParkedEvent, error) {
		return c.cfg.Records.Parked(ctx, "", 5*recordsMax)
	})
	ask(r.Context(), &all, &page.Messages, c.cfg.Parked.Counts)
	ask(r.Context(), &all, &page.Webhooks, c.cfg.Records.Webhooks)
	ask(r.Context(), &all, &page.Repairs, func(ctx context.Context) ([]models.Repair, error) {
		return c.cfg.Records.Repairs(ctx, "", 5*recordsMax)
	})
	_ = all.Wait() // each answer says for itself whether there was one
	c.show(w, s, http.StatusOK, "trouble", &page)
}

type auditLogPage struct {
	Campaign string
	Page     Asked[auditPage]
	Next     string // address of the next page; "": there is none
}

func (c *Console) getAudit(w http.ResponseWriter, r *http.Request, s *session) {
	page := auditLogPage{Campaign: strings.TrimSpace(r.URL.Query().Get("campaign_id"))}
	q := url.Values{"limit": {"100"}}
	if page.Campaign != "" {
		q.Set("campaign_id", page.Campaign)
	}
	if before := r.URL.Query().Get("cursor"); before != "" {
		q.Set("cursor", before)
	}
	found, err := c.audit(r, q)
	page.Page = Asked[auditPage]{Known: err == nil, Value: found}
	if found.NextCursor != "" {
		q.Set("cursor", found.NextCursor)
		page.Next = Path + "/audit?" + q.Encode()
	}
	c.show(w, s, http.StatusOK, "audit", &page)
}
