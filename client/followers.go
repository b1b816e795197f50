package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// LedgerEvent is something that happened to claims. Type is claim.accepted, claim.redeemed, claim.reopened, claim.extended, claim.released (Reason expired: it was not
// redeemed in time), claims.given_up or campaign.closed.
type LedgerEvent struct {
	ID         string            `json:"id"` // as in the claim stream; what to deduplicate on
	Type       string            `json:"type"`
	At         time.Time         `json:"at"`
	CampaignID string            `json:"campaign_id"`
	Shard      int               `json:"shard,omitempty"`
	Seq        int64             `json:"seq,omitempty"` // of the claim, in its shard
	UserID     string            `json:"user_id,omitempty"`
	Quantity   int64             `json:"quantity,omitempty"` // units
	Subjects   map[string]string `json:"subjects,omitempty"` // of the claim beside its user
	PacketID   string            `json:"packet_id,omitempty"`
	Amount     *int64            `json:"amount,omitempty"` // minor units of Currency
	Currency   string            `json:"currency,omitempty"`

	ClaimID   string     `json:"claim_id,omitempty"` // of a decision; that of an accepted claim is ID
	ClaimedAt *time.Time `json:"claimed_at,omitempty"`
	OrderID   string     `json:"order_id,omitempty"`
	Reason    string     `json:"reason,omitempty"`

	IDs  []string   `json:"ids,omitempty"`  // of claims that were given up, as far as they are known
	Seqs [][2]int64 `json:"seqs,omitempty"` // first and last seq of each run of claims that were given up
}

// LedgerPage is a page of a ledger.
type LedgerPage struct {
	Events []LedgerEvent `json:"events"`         // by At, then by ID
	Next   string        `json:"next,omitempty"` // where to go on, now or later
	Upto   time.Time     `json:"upto"`           // no event before this time will ever follow
}

// Ledger reads what happened to the claims of a campaign, up to limit events that come after Next of another page; "" is the beginning. No
// events: there are no more now. Refusals: ErrCampaignNotFound, ErrArchived.
func (c *Client) Ledger(ctx context.Context, campaignID, after string, limit int) (LedgerPage, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		query.Set("after", after)
	}
	return get[LedgerPage](ctx, c, campaignPath(campaignID)+"/ledger", query)
}

// AllLedger goes over what happened to the claims of a campaign so far, page by page. It ends after an error.
func (c *Client) AllLedger(ctx context.Context, campaignID string) iter.Seq2[LedgerEvent, error] {
	return all(func(after string) ([]LedgerEvent, string, error) {
		page, err := c.Ledger(ctx, campaignID, after, pageMax)
		if len(page.Events) == 0 {
			page.Next = ""
		}
		return page.Events, page.Next, err
	})
}

// Settlement is the sums of one day.
type Settlement struct {
	Date     string    `json:"date"`
	TimeZone string    `json:"time_zone"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Final    bool      `json:"final"` // every event of the day is in the sums
	Missing  []struct {
		CampaignID string `json:"campaign_id,omitempty"`
		Reason     string `json:"reason"`
	} `json:"missing"`
	Sums []struct {
		CampaignID string `json:"campaign_id"`
		Currency   string `json:"currency"`
		Type       string `json:"type"`
		Claims     int64  `json:"claims"`
		Units      int64  `json:"units"`
		Amount     int64  `json:"amount"` // minor units
	} `json:"sums"`
}

// Settlement adds up the events of a day such as 2027-01-31 in a time zone; "" is UTC. It may take longer than Config.AttemptTimeout.
// Refusals: ErrInvalid.
func (c *Client) Settlement(ctx context.Context, date, timeZone string) (s Settlement, err error) {
	q := &call{method: http.MethodGet, path: "/v1/settlements/" + segment(date), query: url.Values{"time_zone": {timeZone}}, long: true}
	_, err = c.do(ctx, q, &s)
	return s, err
}

// Group is a consumer group of the claim streams, and how far behind it is.
type Group struct {
	Name       string `json:"name"`
	Partitions []struct {
		Partition int   `json:"partition"`
		Lag       int64 `json:"lag"`     // entries that it was never handed
		Pending   int64 `json:"pending"` // entries that it was handed and has not acknowledged
	} `json:"partitions"`
}

// Groups lists the registered consumer groups.
func (c *Client) Groups(ctx context.Context) ([]Group, error) {
	answer, err := get[struct {
		Groups []Group `json:"groups"`
	}](ctx, c, "/v1/groups", nil)
	return answer.Groups, err
}

// AddGroup registers a consumer group; the same again changes nothing.
func (c *Client) AddGroup(ctx context.Context, name string) error {
	_, err := c.do(ctx, &call{method: http.MethodPut, path: "/v1/groups/" + segment(name), writes: true}, &struct{}{})
	return err
}

// RemoveGroup removes a consumer group that nothing reads for. Refusals: ErrInvalid, Code("group_not_found"), Code("group_in_use").
func (c *Client) RemoveGroup(ctx context.Context, name string) error {
	_, err := c.do(ctx, &call{method: http.MethodDelete, path: "/v1/groups/" + segment(name), writes: true}, nil)
	return err
}
