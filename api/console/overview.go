package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"dibs/api/console/health"
	"dibs/api/console/signin"
	"dibs/models"
)

// Campaigns lists campaigns from MySQL.
type Campaigns interface {
	List(ctx context.Context, q models.CampaignQuery) ([]models.Campaign, error)
	Count(ctx context.Context, q models.CampaignQuery) (int64, error)
	Books(ctx context.Context, id string) (models.Books, error)
}

const (
	rowsPerPage = 50
	pagesMax    = 100_000
)

type overviewPage struct {
	Health health.Report
	Table  campaignTable
}

type campaignTable struct {
	Text, Status, Sort string
	Page               int // from 0
	Known              bool
	Rows               []campaignRow
	Total              int64 // campaigns that match the filter
}

// campaignRow is a campaign from MySQL. Its live figures arrive as events.
type campaignRow struct {
	models.Campaign

	Known bool // false: MySQL doesn't answer, only the id is known
}

func (c *Console) getOverview(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	var page overviewPage
	var both errgroup.Group
	both.Go(func() error { page.Health = health.Of(r.Context(), &c.cfg.Health); return nil })
	both.Go(func() error { page.Table = c.table(r); return nil })
	_ = both.Wait()
	c.show(w, s, http.StatusOK, "overview", &page)
}

func (c *Console) getTable(w http.ResponseWriter, r *http.Request, _ *signin.Session) {
	t := c.table(r)
	c.fragment(w, "table", &t)
}

func (c *Console) table(r *http.Request) campaignTable {
	q := r.URL.Query()
	t := campaignTable{Text: strings.TrimSpace(q.Get("q")), Status: q.Get("status"), Sort: q.Get("sort")}
	if t.Sort == "" {
		t.Sort = string(models.SortByBusy)
	}
	if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 0 && n < pagesMax {
		t.Page = n
	}
	ctx, cancel := context.WithTimeout(r.Context(), health.Timeout)
	defer cancel()
	query := models.CampaignQuery{
		Text: t.Text, Status: models.Status(t.Status), Sort: models.CampaignSort(t.Sort), Offset: t.Page * rowsPerPage, Limit: rowsPerPage,
	}
	found, err := c.cfg.Campaigns.List(ctx, query)
	if err == nil {
		t.Total, err = c.cfg.Campaigns.Count(ctx, query)
	}
	t.Known = err == nil
	if !t.Known {
		found = nil
		for _, id := range c.cfg.Busy(rowsPerPage) {
			found = append(found, models.Campaign{ID: id})
		}
	}
	t.Rows = make([]campaignRow, len(found))
	for i := range found {
		t.Rows[i] = campaignRow{Campaign: found[i], Known: t.Known}
	}
	return t
}

// IDs are the page's campaigns, for live figures.
func (t *campaignTable) IDs() string {
	ids := make([]string, len(t.Rows))
	for i := range t.Rows {
		ids[i] = t.Rows[i].ID
	}
	return strings.Join(ids, ",")
}

// From is the number of the first row among all that match.
func (t *campaignTable) From() int64 { return int64(t.Page*rowsPerPage + 1) }

// To is the number of the last row.
func (t *campaignTable) To() int64 { return int64(t.Page*rowsPerPage + len(t.Rows)) }

// Href is the table's address with another sort or page.
func (t *campaignTable) Href(sort string, page int) string { return Path + "?" + t.query(sort, page) }

// Source is the address of this part of the page.
func (t *campaignTable) Source() string { return Path + "/table?" + t.query(t.Sort, t.Page) }

func (t *campaignTable) query(sort string, page int) string {
	q := url.Values{"sort": {sort}}
	for name, value := range map[string]string{"q": t.Text, "status": t.Status} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if page > 0 {
		q.Set("page", strconv.Itoa(page))
	}
	return q.Encode()
}
