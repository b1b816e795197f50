package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"dibs/api/console/form"
	"dibs/api/console/signin"
	"dibs/api/wire"
	"dibs/models"
	"dibs/models/calendar"
)

type newPage struct {
	Refused *wire.ProblemJSON
	Values  map[string]string
}

// getNew shows the form of a new campaign, filled in from the campaign of
// the query.
func (c *Console) getNew(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	page := newPage{Values: map[string]string{}}
	if like := r.URL.Query().Get("like"); like != "" {
		var k models.CampaignJSON
		if _, p := c.ask(r, http.MethodGet, campaignPath(like), nil, &k); p != nil {
			c.show(w, s, p.Status, "refused", *p)
			return
		}
		page.Values = form.Values(&k)
		page.Values["id"] = ""
	}
	c.show(w, s, http.StatusOK, "new", page)
}

// postNew creates the campaign. Empty fields are omitted, and so is a
// packet campaign's total, which follows from its packets.
func (c *Console) postNew(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	body := map[string]any{}
	page := newPage{Values: map[string]string{}}
	zone, err := calendar.LoadZone(cmp.Or(strings.TrimSpace(r.PostFormValue("time_zone")), "UTC"))
	if err != nil {
		page.Refused = invalid("time_zone", "must be an IANA zone such as Europe/Berlin")
		zone = time.UTC
	}
	names := slices.Clone(form.Fixed)
	for _, f := range form.Changeable {
		names = append(names, f.Name)
	}
	for _, name := range names {
		text := strings.TrimSpace(r.PostFormValue(name))
		page.Values[name] = text
		if text == "" || name == "total" && r.PostFormValue("kind") == string(models.KindPacket) {
			continue
		}
		value, p := form.Parse(name, text, zone, "", r.PostFormValue(form.Twice))
		body[name] = value
		if p != nil && page.Refused == nil {
			page.Refused = new(p.JSON())
		}
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
