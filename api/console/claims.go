package console

import (
	"context"
	"encoding/csv"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"dibs/api/console/signin"
	"dibs/api/wire"
	"dibs/models"
)

const (
	csvPage = "1000" // claims read at a time for a file

	csvReadTimeout  = 10 * time.Second // of one such read
	csvWriteTimeout = 30 * time.Second // in which a browser must take its claims
)

// claimsPage is the API's answer for a campaign's claims, and the data of
// their page.
type claimsPage struct {
	ID, Status string
	Claims     []models.Claim `json:"claims"`
	Next       string         `json:"next"`
}

// query is the path of a page of the list; after "" is the first.
func (p *claimsPage) query(after, limit string) string {
	q := url.Values{"limit": {limit}}
	for name, value := range map[string]string{"status": p.Status, "after": after} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return campaignPath(p.ID) + "/claims?" + q.Encode()
}

// Older is the address of the next page; "" if there is none.
func (p *claimsPage) Older() string {
	if p.Next == "" {
		return ""
	}
	return "?" + url.Values{"status": {p.Status}, "after": {p.Next}}.Encode()
}

func (c *Console) getClaims(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	page := claimsPage{ID: r.PathValue("id"), Status: r.URL.Query().Get("status")}
	if _, p := c.ask(r, http.MethodGet, page.query(r.URL.Query().Get("after"), "100"), nil, &page); p != nil {
		c.show(w, s, p.Status, "refused", *p)
		return
	}
	c.show(w, s, http.StatusOK, "claims", &page)
}

// getClaimsCSV writes all claims that match the filter. If a server fails
// in between, the connection is cut. Browsers open it in a spreadsheet.
func (c *Console) getClaimsCSV(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	page := claimsPage{ID: r.PathValue("id"), Status: r.URL.Query().Get("status")}
	control := http.NewResponseController(w)
	out := csv.NewWriter(w)
	for started := false; !started || page.Next != ""; started = true {
		after := page.Next
		page.Next = ""
		page.Claims = nil
		p := c.askForFile(r, after, &page)
		switch {
		case p != nil && started:
			panic(http.ErrAbortHandler) // so that no one takes the file for complete
		case p != nil:
			c.show(w, s, p.Status, "refused", *p)
			return
		case !started:
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			w.Header().Set("Content-Disposition", `attachment; filename="claims-`+page.ID+`.csv"`)
			_ = out.Write([]string{
				"id", "user_id", "quantity", "seq", "status", "claimed_at", "order_id", "packet_id", "amount", "currency", "release_reason",
			})
		}
		_ = control.SetWriteDeadline(time.Now().Add(csvWriteTimeout))
		for i := range page.Claims {
			k := &page.Claims[i]
			amount := ""
			if k.Amount != nil {
				amount = strconv.FormatInt(*k.Amount, 10)
			}
			_ = out.Write([]string{k.ID, wire.Cell(k.UserID), strconv.FormatInt(k.Quantity, 10), strconv.FormatInt(k.Seq, 10), string(k.Status),
				k.ClaimedAt.Format(models.TimeLayout), wire.Cell(k.OrderID), wire.Cell(k.PacketID), amount, k.Currency,
				wire.Cell(k.ReleaseReason)})
		}
		out.Flush() // the next read notices a disconnected browser
		if r.Context().Err() != nil {
			return
		}
	}
}

// askForFile reads the page after a cursor. It may take longer than a page
// that is shown.
func (c *Console) askForFile(r *http.Request, after string, page *claimsPage) *wire.ProblemJSON {
	ctx, cancel := context.WithTimeout(r.Context(), csvReadTimeout)
	defer cancel()
	_, p := c.ask(r.WithContext(ctx), http.MethodGet, page.query(after, csvPage), nil, page)
	return p
}
