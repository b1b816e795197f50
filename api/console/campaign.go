package console

import (
	"net/http"
	"net/url"

	"dibs/models"
)

// recordsMax is how many records of a kind a page shows.
const recordsMax = 20

type campaignPage struct {
	Campaign models.CampaignJSON
	Done     string // what was just done
	Records  recordsOf
}

// recordsOf are the records of a campaign.
type recordsOf struct {
	ID          string
	Packets     bool
	Waves       []models.Wave
	Flushes     []models.StockFlush
	Comparisons []models.Reconciliation
	Repairs     []models.Repair
	Parked      []models.ParkedEvent
	Changes     []models.AuditEntry
	Away        bool // MySQL did not answer all
}

func (c *Console) getCampaign(w http.ResponseWriter, r *http.Request, s *session) {
	var page campaignPage
	if _, p := c.ask(r, "GET", campaignPath(r.PathValue("id")), nil, &page.Campaign); p != nil {
		c.show(w, s, p.Status, "refused", *p)
		return
	}
	page.Done = doneWords[r.URL.Query().Get("done")]
	page.Records = c.records(r, page.Campaign.ID, page.Campaign.Kind)
	c.show(w, s, http.StatusOK, "campaign", page)
}

func (c *Console) getRecords(w http.ResponseWriter, r *http.Request, _ *session) {
	if models.CheckCampaignID(r.PathValue("id")) != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	c.fragment(w, "records", c.records(r, r.PathValue("id"), models.Kind(r.URL.Query().Get("kind"))))
}

// records reads what it can; what MySQL does not answer is left out, and the page says so.
func (c *Console) records(r *http.Request, id string, kind models.Kind) recordsOf {
	ctx, all := r.Context(), recordsOf{ID: id, Packets: kind == models.KindPacket}
	var err error
	failed := func() bool {
		all.Away = all.Away || err != nil
		return err != nil
	}
	if all.Packets {
		all.Waves, err = c.cfg.Records.Waves(ctx, id, recordsMax)
	}
	if !failed() {
		all.Flushes, err = c.cfg.Records.Flushes(ctx, id, recordsMax)
	}
	if !failed() {
		all.Comparisons, err = c.cfg.Records.Comparisons(ctx, id, recordsMax)
	}
	if !failed() {
		all.Repairs, err = c.cfg.Records.Repairs(ctx, id, recordsMax)
	}
	if !failed() {
		all.Parked, err = c.cfg.Records.Parked(ctx, id, recordsMax)
	}
	failed()
	var audit struct {
		Entries []models.AuditEntry `json:"entries"`
	}
	if _, p := c.ask(r, http.MethodGet, "/v1/audit?limit=20&campaign_id="+url.QueryEscape(id), nil, &audit); p != nil {
		all.Away = true
	}
	all.Changes = audit.Entries
	return all
}

type troublePage struct {
	Parked  []models.ParkedEvent
	Repairs []models.Repair
	Away    bool
}

func (c *Console) getTrouble(w http.ResponseWriter, r *http.Request, s *session) {
	var page troublePage
	var err error
	if page.Parked, err = c.cfg.Records.Parked(r.Context(), "", 5*recordsMax); err == nil {
		page.Repairs, err = c.cfg.Records.Repairs(r.Context(), "", 5*recordsMax)
	}
	page.Away = err != nil
	c.show(w, s, http.StatusOK, "trouble", page)
}
