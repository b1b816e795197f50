package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"

	"github.com/google/uuid"
)

// Stock reads a campaign's stock. Refusals: ErrCampaignNotFound.
func (c *Client) Stock(ctx context.Context, campaignID string) (Stock, error) {
	return get[Stock](ctx, c, campaignPath(campaignID)+"/stock", nil)
}

// GetCampaign reads a campaign. Refusals: ErrCampaignNotFound.
func (c *Client) GetCampaign(ctx context.Context, id string) (Campaign, error) {
	return get[Campaign](ctx, c, campaignPath(id), nil)
}

// CampaignsPage is a page of the list of campaigns.
type CampaignsPage struct {
	Campaigns  []Campaign `json:"campaigns"`             // by id
	NextCursor string     `json:"next_cursor,omitempty"` // "" on the last page
}

// CampaignFilter selects campaigns. Zero fields select all.
type CampaignFilter struct {
	Text   string // part of the id or the name, ignoring case
	Status Status
}

// FindCampaigns reads a page of the campaigns that match a filter, by id.
// Refusals: ErrInvalid.
func (c *Client) FindCampaigns(ctx context.Context, f CampaignFilter, page Page) (CampaignsPage, error) {
	query := page.query()
	if f.Text != "" {
		query.Set("q", f.Text)
	}
	if f.Status != "" {
		query.Set("status", string(f.Status))
	}
	return get[CampaignsPage](ctx, c, "/v1/campaigns", query)
}

// AllCampaigns iterates over the campaigns that match a filter, by id. It
// ends after an error.
func (c *Client) AllCampaigns(ctx context.Context, f CampaignFilter) iter.Seq2[Campaign, error] {
	return all(func(cursor string) ([]Campaign, string, error) {
		page, err := c.FindCampaigns(ctx, f, Page{Limit: pageMax, Cursor: cursor})
		return page.Campaigns, page.NextCursor, err
	})
}

// CreateCampaign creates a campaign. created is false if an identical one
// exists, as after an attempt whose answer was lost. Refusals:
// ErrCampaignExists (with other content), ErrInvalid. Like all functions
// below it needs an admin's token.
func (c *Client) CreateCampaign(ctx context.Context, n NewCampaign) (campaign Campaign, created bool, err error) {
	q := &call{method: http.MethodPost, path: "/v1/campaigns", body: n}
	campaign, err = send[Campaign](ctx, c, q)
	return campaign, q.status == http.StatusCreated, err
}

// PatchCampaign changes a campaign. The change applies to the next claim.
// Refusals: ErrCampaignNotFound, ErrClosed, ErrInvalid.
func (c *Client) PatchCampaign(ctx context.Context, id string, p CampaignPatch) (Campaign, error) {
	return send[Campaign](ctx, c, &call{method: http.MethodPatch, path: campaignPath(id), body: p})
}

// PausedCampaigns is the result of PauseCampaigns.
type PausedCampaigns struct {
	Paused []string `json:"paused"` // ids
	// false: MySQL didn't answer, and campaigns that Redis doesn't hold
	// aren't paused
	Complete bool `json:"complete"`
}

// PauseCampaigns pauses every open campaign, even while MySQL is unreachable.
func (c *Client) PauseCampaigns(ctx context.Context) (PausedCampaigns, error) {
	return send[PausedCampaigns](ctx, c, &call{method: http.MethodPost, path: "/v1/campaigns:pause"})
}

// AddPackets adds packets to a campaign, all or none. Refusals:
// ErrCampaignNotFound, ErrClosed, ErrInvalid, ErrIdempotencyMismatch.
func (c *Client) AddPackets(ctx context.Context, campaignID string, n NewPackets) (PacketsAdded, error) {
	key := cmp.Or(n.Key, uuid.NewString())
	return send[PacketsAdded](ctx, c, &call{method: http.MethodPost, path: campaignPath(campaignID) + "/packets", key: key, body: n})
}

// CloseCampaign closes a campaign permanently. Refusals: ErrCampaignNotFound.
func (c *Client) CloseCampaign(ctx context.Context, id string) (Campaign, error) {
	return send[Campaign](ctx, c, &call{method: http.MethodPost, path: campaignPath(id) + "/close"})
}

// DeleteCampaign deletes a campaign that never had claims. Refusals:
// Code("claimed"); ErrCampaignNotFound, also if a lost attempt deleted it.
func (c *Client) DeleteCampaign(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, &call{method: http.MethodDelete, path: campaignPath(id)})
	return err
}

func campaignPath(id string) string { return "/v1/campaigns/" + segment(id) }
