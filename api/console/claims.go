package console

import (
	"encoding/csv"
	"net/http"
	"net/url"
	"strconv"

	"dibs/models"
)

// csvPage is how many claims a file is made of at a time.
const csvPage = "1000"

// claimsPage is what the API answers about the claims of a campaign, as
// its page shows it.
type claimsPage struct {
	ID, Status string
	Claims     []models.Claim `json:"claims"`
	Next       string         `json:"next"`
}

// query is the address of a page of the list; "" is the first.
func (p *claimsPage) query(after, limit string) string {
	q := url.Values{"limit": {limit}}
	for name, value := range map[string]string{"status": p.Status, "after": after} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return campaignPath(p.ID) + "/claims?" + q.Encode()
}

// Older is the address of the next page; "" when there is none.
func (p *claimsPage) Older() string {
	if p.Next == "" {
		return ""
	}
	return "?" + url.Values{"status": {p.Status}, "after": {p.Next}}.Encode()
}

func (c *Console) getClaims(w http.ResponseWriter, r *http.Request, s *session) {
	page := claimsPage{ID: r.PathValue("id"), Status: r.URL.Query().Get("status")}
	if _, p := c.ask(r, http.MethodGet, page.query(r.URL.Query().Get("after"), "100"), nil, &page); p != nil {
		c.show(w, s, p.Status, "refused", *p)
		return
	}
	c.show(w, s, http.StatusOK, "claims", &page)
}

// getClaimsCSV writes all claims that the filter lets through. A file that
// ends early, because a server does not answer, is cut off.
func (c *Console) getClaimsCSV(w http.ResponseWriter, r *http.Request, s *session) {
	page := claimsPage{ID: r.PathValue("id"), Status: r.URL.Query().Get("status")}
	out := csv.NewWriter(w)
	for begun := false; !begun || page.Next != ""; begun = true {
		after := page.Next
		page.Next = ""
		page.Claims = nil
		_, p := c.ask(r, http.MethodGet, page.query(after, csvPage), nil, &page)
		switch {
		case p != nil && begun:
			panic(http.ErrAbortHandler) // so that nobody takes it for the whole
		case p != nil:
			c.show(w, s, p.Status, "refused", *p)
			return
		case !begun:
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			w.Header().Set("Content-Disposition", `attachment; filename="claims-`+page.ID+`.csv"`)
			_ = out.Write([]string{
				"id", "user_id", "quantity", "seq", "status", "claimed_at", "order_id", "packet_id", "amount", "currency", "release_reason",
			})
		}
		for i := range page.Claims {
			k := &page.Claims[i]
			amount := ""
			if k.Amount != nil {
				amount = strconv.FormatInt(*k.Amount, 10)
			}
			_ = out.Write([]string{k.ID, k.UserID, strconv.FormatInt(k.Quantity, 10), strconv.FormatInt(k.Seq, 10), string(k.Status),
				k.ClaimedAt.Format(models.TimeLayout), k.OrderID, k.PacketID, amount, k.Currency, k.ReleaseReason})
		}
		out.Flush() // a browser that is gone is noticed by the next question
		if r.Context().Err() != nil {
			return
		}
	}
}
