package console

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"dibs/api/console/health"
	"dibs/api/console/signin"
	"dibs/api/console/words"
	"dibs/models"
	"dibs/models/stored"
)

const recordsMax = 20

type campaignPage struct {
	ID       string
	Campaign *models.CampaignJSON // nil: MySQL doesn't answer
	Stock    *models.Stock        // nil: unknown
	// the only server that the stock comes from, as the other doesn't
	// answer; "": both
	By      string
	Done    string // the action just done
	Shards  health.Asked[models.ShardsOf]
	Records recordsOf
	Acts    bool // the user may change it
}

// State is the campaign's state in one word.
func (p *campaignPage) State() string {
	if p.Campaign == nil || p.Stock == nil {
		return words.NotKnown
	}
	k := p.Campaign
	return stateOf(k.Status, timeOf(k.StartsAt), timeOf(k.EndsAt), p.Stock.Remaining, p.Stock.Total)
}

func timeOf(t *models.Time) *time.Time {
	if t == nil {
		return nil
	}
	return &t.Time
}

type recordsOf struct {
	ID          string
	Kind        models.Kind
	Shards      int
	Currency    string
	Acts        bool
	Waves       health.Asked[[]stored.Wave]
	Flushes     health.Asked[[]stored.StockFlush]
	Comparisons health.Asked[[]stored.Reconciliation]
	Repairs     health.Asked[[]stored.Repair]
	Parked      health.Asked[[]stored.ParkedEvent]
	Changes     health.Asked[[]models.AuditEntry]
}

func (c *Console) getCampaign(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	id := r.PathValue("id")
	page := campaignPage{ID: id, Done: doneWords[r.URL.Query().Get("done")], Acts: s.Who.Acts}
	var all errgroup.Group
	var inBoth, inRedis health.Asked[models.Stock]
	var inMySQL health.Asked[models.Books]
	health.Ask(r.Context(), &all, &inBoth, func(context.Context) (stock models.Stock, err error) {
		err = c.answered(r, campaignPath(id)+"/stock", &stock)
		return stock, err
	})
	health.Ask(r.Context(), &all, &inRedis, func(ctx context.Context) (models.Stock, error) { return c.cfg.Live.StockInRedis(ctx, id) })
	health.Ask(r.Context(), &all, &inMySQL, func(ctx context.Context) (models.Books, error) { return c.cfg.Campaigns.Books(ctx, id) })
	var campaign models.CampaignJSON
	_, p := c.ask(r, http.MethodGet, campaignPath(id), nil, &campaign)
	_ = all.Wait() // each answer has its own error
	switch {
	case p == nil:
		page.Campaign = &campaign
	case p.Status != http.StatusServiceUnavailable:
		c.show(w, s, p.Status, "refused", *p)
		return
	}
	switch {
	case inBoth.Known:
		page.Stock = &inBoth.Value
	case inRedis.Known:
		page.Stock = &inRedis.Value
		page.By = "Redis"
	case inMySQL.Known:
		page.Stock = new(inMySQL.Value.Stock(id))
		page.By = "MySQL"
	}
	page.Records = recordsOf{ID: id, Kind: campaign.Kind, Shards: campaign.Shards, Currency: campaign.Currency, Acts: page.Acts}
	if campaign.Shards > 1 {
		_, away := c.ask(r, http.MethodGet, campaignPath(id)+"/shards", nil, &page.Shards.Value)
		page.Shards.Known = away == nil
		for i := 0; away != nil && i < campaign.Shards; i++ {
			page.Shards.Value.Shards = append(page.Shards.Value.Shards, models.ShardFigures{Shard: i + 1})
		}
	}
	if p == nil {
		c.read(r, &page.Records)
	}
	c.show(w, s, http.StatusOK, "campaign", &page)
}

func (c *Console) getRecords(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	id := r.PathValue("id")
	var campaign models.CampaignJSON
	if _, p := c.ask(r, http.MethodGet, campaignPath(id), nil, &campaign); p != nil {
		w.WriteHeader(p.Status)
		return
	}
	records := recordsOf{ID: id, Kind: campaign.Kind, Shards: campaign.Shards, Currency: campaign.Currency, Acts: s.Who.Acts}
	c.read(r, &records)
	c.fragment(w, "records", &records)
}

// read reads all records concurrently. What MySQL doesn't answer is shown
// as unknown.
func (c *Console) read(r *http.Request, o *recordsOf) {
	var all errgroup.Group
	records := c.cfg.Records
	if o.Kind == models.KindPacket {
		health.Ask(r.Context(), &all, &o.Waves, lastOf(records.Waves, o.ID))
	}
	health.Ask(r.Context(), &all, &o.Flushes, lastOf(records.Flushes, o.ID))
	health.Ask(r.Context(), &all, &o.Comparisons, lastOf(records.Comparisons, o.ID))
	health.Ask(r.Context(), &all, &o.Repairs, lastOf(records.Repairs, o.ID))
	health.Ask(r.Context(), &all, &o.Parked, lastOf(records.Parked, o.ID))
	health.Ask(r.Context(), &all, &o.Changes, func(context.Context) ([]models.AuditEntry, error) {
		var page auditPage
		err := c.answered(r, "/v1/audit?"+url.Values{"campaign_id": {o.ID}, "limit": {"20"}}.Encode(), &page)
		return page.Entries, err
	})
	_ = all.Wait() // each answer has its own error
}

func lastOf[T any](read func(context.Context, string, int) ([]T, error), id string) func(context.Context) ([]T, error) {
	return func(ctx context.Context) ([]T, error) { return read(ctx, id, recordsMax) }
}

type auditPage struct {
	Entries    []models.AuditEntry `json:"entries"`
	NextCursor string              `json:"next_cursor"`
}
