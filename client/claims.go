package client

import (
	"cmp"
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
	// Key is the idempotency key, 1 to 255 characters that can be seen: the
	// same request with the same key is one claim for ever. "" has one made for
	// this call; a program that may die and ask again wants its own, such as
	// the number of the cart.
	Key string
	// Subjects are what limits of the campaign are by beside the user, such as
	// a device: values by name.
	Subjects map[string]string
}

type claimBody struct {
	CampaignID string            `json:"campaign_id,omitempty"` // in a shared request
	UserID     string            `json:"user_id"`
	Quantity   int64             `json:"quantity,omitempty"`
	Key        string            `json:"idempotency_key,omitempty"` // in a shared request
	Subjects   map[string]string `json:"subjects,omitempty"`
}

// Claim makes a claim. Refusals: ErrSoldOut, ErrUserLimit, ErrUserDayLimit,
// ErrLimit, ErrNotStarted, ErrNotReleased, ErrEnded, ErrPaused, ErrClosed,
// ErrCampaignNotFound, ErrInvalid, ErrIdempotencyMismatch. *OutcomeError: the
// claim may have been made.
func (c *Client) Claim(ctx context.Context, req ClaimRequest) (Claim, error) {
	req.Key = cmp.Or(req.Key, uuid.NewString())
	var claim Claim
	err := c.ask(ctx, &call{key: req.Key}, func() (err error) {
		claim, err = c.gather.claim(ctx, req)
		return err
	})
	return claim, err
}

// claimAlone sends a claim once, in a request of its own.
func (c *Client) claimAlone(ctx context.Context, req ClaimRequest) (Claim, error) {
	body, err := json.Marshal(claimBody{UserID: req.UserID, Quantity: req.Quantity, Subjects: req.Subjects})
	if err != nil {
		return Claim{}, fmt.Errorf("client: %w", err)
	}
	a, err := c.once(ctx, &call{method: http.MethodPost, path: campaignPath(req.CampaignID) + "/claims", key: req.Key}, body)
	if err != nil {
		return Claim{}, err
	}
	claim := Claim{Replayed: a.replayed}
	err = a.read(&claim)
	return claim, err
}

// GetClaim reads a claim, which is found from the moment it is answered.
// Refusals: ErrClaimNotFound.
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

// UserClaims reads a page of a user's claims, newest first; campaignID "" is of
// all campaigns.
func (c *Client) UserClaims(ctx context.Context, userID, campaignID string, page Page) (ClaimsPage, error) {
	q := page.query()
	if campaignID != "" {
		q.Set("campaign_id", campaignID)
	}
	return get[ClaimsPage](ctx, c, "/v1/users/"+segment(userID)+"/claims", q)
}

// AllUserClaims goes over all claims of a user, newest first, page by page. It
// ends after an error.
func (c *Client) AllUserClaims(ctx context.Context, userID, campaignID string) iter.Seq2[Claim, error] {
	return all(func(cursor string) ([]Claim, string, error) {
		page, err := c.UserClaims(ctx, userID, campaignID, Page{Cursor: cursor})
		return page.Claims, page.NextCursor, err
	})
}

// nextPage is a page of CampaignClaims or of Ledger.
type nextPage struct {
	Claims []Claim           `json:"claims"`
	Events []json.RawMessage `json:"events"`
	Next   string            `json:"next"`
}

// CampaignClaims goes over a campaign's claims, newest first; status "" is all.
// It ends after an error.
func (c *Client) CampaignClaims(ctx context.Context, campaignID string, status ClaimStatus) iter.Seq2[Claim, error] {
	return all(func(after string) ([]Claim, string, error) {
		query := url.Values{"status": {string(status)}, "limit": {strconv.Itoa(pageMax)}, "after": {after}}
		page, err := get[nextPage](ctx, c, campaignPath(campaignID)+"/claims", query)
		return page.Claims, page.Next, err
	})
}

// Ledger goes over everything that happened to a campaign's claims, in order,
// as docs/api/events.md has it. It ends after an error.
func (c *Client) Ledger(ctx context.Context, campaignID string) iter.Seq2[json.RawMessage, error] {
	return all(func(after string) ([]json.RawMessage, string, error) {
		page, err := get[nextPage](ctx, c, campaignPath(campaignID)+"/ledger", url.Values{"after": {after}})
		return page.Events, page.Next, err
	})
}

// all goes over a list page by page. One that goes on later ends with a page
// without items.
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
			if next == "" || len(items) == 0 {
				return
			}
			cursor = next
		}
	}
}

// Redeem uses a claim up for an order; again for the same order changes
// nothing. Refusals: ErrClaimNotFound, ErrAlreadyRedeemed (for another order),
// ErrAlreadyReleased.
func (c *Client) Redeem(ctx context.Context, claimID, orderID string) (Claim, error) {
	return c.resolve(ctx, claimID, "redeem", map[string]string{"order_id": orderID}, "")
}

// Release gives a claim back, stock and limits with it; again changes nothing.
// reason may be "". Refusals: ErrClaimNotFound, ErrAlreadyRedeemed.
func (c *Client) Release(ctx context.Context, claimID, reason string) (Claim, error) {
	return c.resolve(ctx, claimID, "release", map[string]string{"reason": reason}, "")
}

// Reopen takes back that an order redeemed a claim, for an order that was
// refunded; again for the same order changes nothing. reason may be "".
// Refusals: ErrClaimNotFound, ErrNotRedeemed, ErrAlreadyRedeemed (by another
// order), ErrAlreadyReleased.
func (c *Client) Reopen(ctx context.Context, claimID, orderID, reason string) (Claim, error) {
	return c.resolve(ctx, claimID, "reopen", map[string]string{"order_id": orderID, "reason": reason}, "")
}

// Extend has the hold of a claim last longer, up to what its campaign allows;
// the claim that it returns says until when. Again with the same key changes
// nothing; "" makes one up. Refusals: ErrClaimNotFound, ErrAlreadyRedeemed,
// ErrAlreadyReleased, ErrInvalid (the claim has no hold).
func (c *Client) Extend(ctx context.Context, claimID string, by time.Duration, key string) (Claim, error) {
	return c.resolve(ctx, claimID, "extend", map[string]string{"by": by.String()}, cmp.Or(key, uuid.NewString()))
}

func (c *Client) resolve(ctx context.Context, claimID, verb string, body map[string]string, key string) (Claim, error) {
	if body["reason"] == "" {
		delete(body, "reason")
	}
	return send[Claim](ctx, c, &call{method: http.MethodPost, path: "/v1/claims/" + segment(claimID) + "/" + verb, key: key, body: body})
}
