package client

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// ClaimRequest requests units of a campaign.
type ClaimRequest struct {
	CampaignID string
	UserID     string
	Quantity   int64 // units, all or none; 0 is 1
	// Key is the idempotency key, 1 to 255 visible characters. Requests
	// with the same key are one claim, permanently. "" generates one for
	// this call. A program that may crash and retry needs its own, such as
	// the cart's number.
	Key string
	// Subjects are what the campaign limits beside the user, such as a
	// device: values by name.
	Subjects map[string]string
}

type claimBody struct {
	CampaignID string            `json:"campaign_id,omitempty"` // in a batch
	UserID     string            `json:"user_id"`
	Quantity   int64             `json:"quantity,omitempty"`
	Key        string            `json:"idempotency_key,omitempty"` // in a batch
	Subjects   map[string]string `json:"subjects,omitempty"`
}

// Claim makes a claim. Refusals: ErrSoldOut, ErrUserLimit, ErrUserDayLimit,
// ErrLimit, ErrNotStarted, ErrNotReleased, ErrEnded, ErrPaused, ErrClosed,
// ErrCampaignNotFound, ErrInvalid, ErrIdempotencyMismatch. *OutcomeError:
// the claim may have been made.
func (c *Client) Claim(ctx context.Context, req ClaimRequest) (Claim, error) {
	req.Key = cmp.Or(req.Key, uuid.NewString())
	var claim Claim
	err := c.ask(ctx, &call{key: req.Key, isClaim: true}, func() (err error) {
		claim, err = c.gather.claim(ctx, req)
		return err
	})
	return claim, err
}

func (c *Client) claimAlone(ctx context.Context, req ClaimRequest) (Claim, error) {
	body, err := encode(claimBody{UserID: req.UserID, Quantity: req.Quantity, Subjects: req.Subjects})
	if err != nil {
		return Claim{}, err
	}
	a, err := c.once(ctx, &call{method: http.MethodPost, path: campaignPath(req.CampaignID) + "/claims", key: req.Key}, body)
	if err != nil {
		return Claim{}, err
	}
	claim := Claim{Replayed: a.replayed}
	err = a.read(&claim)
	return claim, err
}

// GetClaim reads a claim. It is found as soon as it is answered. Refusals:
// ErrClaimNotFound.
func (c *Client) GetClaim(ctx context.Context, id string) (Claim, error) {
	return get[Claim](ctx, c, "/v1/claims/"+segment(id), nil)
}

// ClaimsPage is a page of a list of claims.
type ClaimsPage struct {
	Claims     []Claim `json:"claims"`                // newest first
	NextCursor string  `json:"next_cursor,omitempty"` // "" on the last page
}

const pageMax = 1000

// Page selects a part of a list.
type Page struct {
	Limit  int    // items of the page, up to 1,000; 0 is 100
	Cursor string // NextCursor of the previous page; "" is the first page
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

// UserClaims reads a page of a user's claims, newest first; campaignID ""
// is all campaigns.
func (c *Client) UserClaims(ctx context.Context, userID, campaignID string, page Page) (ClaimsPage, error) {
	q := page.query()
	if campaignID != "" {
		q.Set("campaign_id", campaignID)
	}
	return get[ClaimsPage](ctx, c, "/v1/users/"+segment(userID)+"/claims", q)
}

// AllUserClaims iterates over a user's claims, newest first. It ends after
// an error.
func (c *Client) AllUserClaims(ctx context.Context, userID, campaignID string) iter.Seq2[Claim, error] {
	return all(func(cursor string) ([]Claim, string, error) {
		page, err := c.UserClaims(ctx, userID, campaignID, Page{Cursor: cursor})
		return page.Claims, page.NextCursor, err
	})
}

type nextPage struct {
	Claims []Claim           `json:"claims"`
	Events []json.RawMessage `json:"events"`
	Next   string            `json:"next"`
}

// CampaignClaims iterates over a campaign's claims, newest first; status ""
// is all. It ends after an error.
func (c *Client) CampaignClaims(ctx context.Context, campaignID string, status ClaimStatus) iter.Seq2[Claim, error] {
	return all(func(after string) ([]Claim, string, error) {
		query := url.Values{"status": {string(status)}, "limit": {strconv.Itoa(pageMax)}, "after": {after}}
		page, err := get[nextPage](ctx, c, campaignPath(campaignID)+"/claims", query)
		return page.Claims, page.Next, err
	})
}

// Ledger iterates over the events of a campaign's claims, in order, see
// docs/api/events.md. It ends after an error.
func (c *Client) Ledger(ctx context.Context, campaignID string) iter.Seq2[json.RawMessage, error] {
	return all(func(after string) ([]json.RawMessage, string, error) {
		page, err := send[nextPage](ctx, c, &call{
			method: http.MethodGet, path: campaignPath(campaignID) + "/ledger", query: url.Values{"after": {after}}, answerMax: longAnswerMax,
		})
		return page.Events, page.Next, err
	})
}

// all iterates over a list page by page. The last page of a growing list is
// empty.
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

// Redeem redeems a claim for an order. Repeating it for the same order
// changes nothing. Refusals: ErrClaimNotFound, ErrAlreadyRedeemed (for
// another order), ErrAlreadyReleased.
func (c *Client) Redeem(ctx context.Context, claimID, orderID string) (Claim, error) {
	return c.resolve(ctx, claimID, "redeem", map[string]string{"order_id": orderID}, "")
}

// Release returns a claim's units to stock and limits. Repeating it changes
// nothing. reason may be "". Refusals: ErrClaimNotFound, ErrAlreadyRedeemed.
func (c *Client) Release(ctx context.Context, claimID, reason string) (Claim, error) {
	return c.resolve(ctx, claimID, "release", map[string]string{"reason": reason}, "")
}

// Reopen undoes the redeem by an order, such as a refunded one. Repeating
// it for the same order changes nothing. reason may be "". Refusals:
// ErrClaimNotFound, ErrNotRedeemed, ErrAlreadyRedeemed (by another order),
// ErrAlreadyReleased.
func (c *Client) Reopen(ctx context.Context, claimID, orderID, reason string) (Claim, error) {
	return c.resolve(ctx, claimID, "reopen", map[string]string{"order_id": orderID, "reason": reason}, "")
}

// Extend lengthens a claim's hold, up to the campaign's maximum. The returned
// claim has its new end. Repeating it with the same key changes nothing; ""
// generates a key. Refusals: ErrClaimNotFound, ErrAlreadyRedeemed,
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
