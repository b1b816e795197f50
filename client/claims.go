package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// ClaimRequest asks for units of a campaign.
type ClaimRequest struct {
	CampaignID string
	UserID     string
	Quantity   int64 // units, all of them or none; 0 is 1
	// Key is the idempotency key, 1 to 255 characters that can be seen: the same request with the same key is one claim for ever. "" has
	// one made for this call; a program that may die and ask again wants its own, such as the number of the cart.
	Key string
	// Subjects are what limits of the campaign are by beside the user, such as a device: values by name.
	Subjects map[string]string
}

type claimBody struct {
	CampaignID string            `json:"campaign_id,omitempty"` // in a batch
	UserID     string            `json:"user_id"`
	Quantity   int64             `json:"quantity,omitempty"`
	Key        string            `json:"idempotency_key,omitempty"` // in a batch
	Subjects   map[string]string `json:"subjects,omitempty"`
}

// newKey makes an idempotency key.
func newKey() string { return uuid.NewString() }

// Claim makes a claim. Refusals: ErrSoldOut, ErrUserLimit, ErrUserDayLimit, ErrLimit, ErrNotStarted, ErrNotReleased, ErrEnded, ErrPaused,
// ErrClosed, ErrCampaignNotFound, ErrInvalid, ErrIdempotencyMismatch. *OutcomeError: the claim may have been made.
func (c *Client) Claim(ctx context.Context, req ClaimRequest) (Claim, error) {
	def(&req.Key, newKey())
	var claim Claim
	err := c.ask(ctx, &call{key: req.Key, writes: true}, func() (err error) {
		claim, err = c.gather.claim(ctx, req)
		return err
	})
	if err != nil {
		return Claim{}, err
	}
	return claim, nil
}

// claimAlone sends a claim once, in a request of its own.
func (c *Client) claimAlone(ctx context.Context, req ClaimRequest) (Claim, error) {
	body, err := json.Marshal(claimBody{UserID: req.UserID, Quantity: req.Quantity, Subjects: req.Subjects})
	if err != nil {
		return Claim{}, fmt.Errorf("client: %w", err)
	}
	path := "/v1/campaigns/" + segment(req.CampaignID) + "/claims"
	a, err := c.once(ctx, &call{method: http.MethodPost, path: path, key: req.Key}, body)
	if err != nil {
		return Claim{}, err
	}
	claim := Claim{Replayed: a.replayed}
	if err := a.read(&claim); err != nil {
		return Claim{}, err
	}
	return claim, nil
}

// GetClaim reads a claim, which is found from the moment it is answered. Refusals: ErrClaimNotFound.
func (c *Client) GetClaim(ctx context.Context, id string) (Claim, error) {
	return get[Claim](ctx, c, "/v1/claims/"+segment(id), nil)
}

// ClaimsPage is a page of a list of claims.
type ClaimsPage struct {
	Claims     []Claim `json:"claims"`                // newest first
	NextCursor string  `json:"next_cursor,omitempty"` // "" on the last page
}

// pageMax is the most items of a page.
const pageMax = 1000

// Page is which part of a list is asked for.
type Page struct {
	Limit  int    // most on the page, up to 1,000; 0 is 100
	Cursor string // NextCursor of the page before; "" is the first page
}

func (p Page) query() url.Values {
	q := url.Values{}
	if p.Limit != 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Cursor != "" {
		q.Set("cursor", p.Cursor)
	}
	return q
}

// UserClaims reads a page of a user's claims, newest first; campaignID "" is of all campaigns.
func (c *Client) UserClaims(ctx context.Context, userID, campaignID string, page Page) (ClaimsPage, error) {
	q := page.query()
	if campaignID != "" {
		q.Set("campaign_id", campaignID)
	}
	return get[ClaimsPage](ctx, c, "/v1/users/"+segment(userID)+"/claims", q)
}

// AllUserClaims goes over all claims of a user, newest first, page by page. It ends after an error.
func (c *Client) AllUserClaims(ctx context.Context, userID, campaignID string) iter.Seq2[Claim, error] {
	return all(func(cursor string) ([]Claim, string, error) {
		page, err := c.UserClaims(ctx, userID, campaignID, Page{Cursor: cursor})
		return page.Claims, page.NextCursor, err
	})
}

// all goes over a list page by page.
func all[T any](read func(cursor string) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor := ""; ; {
			items, next, err := read(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			cursor = next
		}
	}
}

// Redeem uses a claim up for an order; again for the same order changes nothing. Refusals: ErrClaimNotFound,
// ErrAlreadyRedeemed (for another order), ErrAlreadyReleased.
func (c *Client) Redeem(ctx context.Context, claimID, orderID string) (Claim, error) {
	return c.resolve(ctx, claimID, "redeem", map[string]string{"order_id": orderID}, "")
}

// Release gives a claim back, stock and limits with it; again changes nothing. reason may be "". Refusals: ErrClaimNotFound,
// ErrAlreadyRedeemed.
func (c *Client) Release(ctx context.Context, claimID, reason string) (Claim, error) {
	body := map[string]string{}
	if reason != "" {
		body["reason"] = reason
	}
	return c.resolve(ctx, claimID, "release", body, "")
}

// Reopen takes back that an order redeemed a claim, for an order that was refunded; again for the same order changes nothing. reason may
// be "". Refusals: ErrClaimNotFound, ErrNotRedeemed, ErrAlreadyRedeemed (by another order), ErrAlreadyReleased.
func (c *Client) Reopen(ctx context.Context, claimID, orderID, reason string) (Claim, error) {
	body := map[string]string{"order_id": orderID}
	if reason != "" {
		body["reason"] = reason
	}
	return c.resolve(ctx, claimID, "reopen", body, "")
}

// Extend has the hold of a claim last longer, up to what its campaign allows; the claim that it returns says until when. Again with the
// same key changes nothing; "" makes one up. Refusals: ErrClaimNotFound, ErrAlreadyRedeemed, ErrAlreadyReleased, ErrInvalid (the claim
// has no hold).
func (c *Client) Extend(ctx context.Context, claimID string, by time.Duration, key string) (Claim, error) {
	def(&key, newKey())
	return c.resolve(ctx, claimID, "extend", map[string]string{"by": by.String()}, key)
}

func (c *Client) resolve(ctx context.Context, claimID, verb string, body any, key string) (claim Claim, err error) {
	path := "/v1/claims/" + segment(claimID) + "/" + verb
	_, err = c.do(ctx, &call{method: http.MethodPost, path: path, key: key, body: body, writes: true}, &claim)
	if err != nil {
		return Claim{}, err
	}
	return claim, nil
}

// get reads what lies at a path.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	var found, none T
	if _, err := c.do(ctx, &call{method: http.MethodGet, path: path, query: query}, &found); err != nil {
		return none, err
	}
	return found, nil
}
