package client

import (
	"context"
	"fmt"
	"net/http"
)

// claimResult is the result of one claim of a batch: a claim, or err as of
// Claim.
type claimResult struct {
	claim Claim
	err   error
}

func (c *Client) sendBatch(ctx context.Context, bodies []claimBody) ([]claimResult, error) {
	body, err := encode(map[string][]claimBody{"claims": bodies})
	if err != nil {
		return nil, err
	}
	a, err := c.once(ctx, &call{method: http.MethodPost, path: "/v1/claims:batch", keysInside: true}, body)
	if err != nil {
		return nil, err
	}
	var wire struct {
		Results []struct {
			Claim   *Claim       `json:"claim"`
			Problem *problemJSON `json:"problem"`
		} `json:"results"`
	}
	if err := a.read(&wire); err != nil {
		return nil, err
	}
	if len(wire.Results) != len(bodies) {
		return nil, fmt.Errorf("%w: %d results for %d claims", ErrAnswer, len(wire.Results), len(bodies))
	}
	results := make([]claimResult, len(wire.Results))
	for i, r := range wire.Results {
		switch {
		case r.Claim != nil:
			results[i].claim = *r.Claim
			results[i].claim.Replayed = a.replayed || i < len(a.replays) && a.replays[i] == '1'
		case r.Problem != nil:
			results[i].err = r.Problem.problem()
			if a.resent {
				results[i].err = &resentError{results[i].err}
			}
		default:
			results[i].err = fmt.Errorf("%w: a result without claim and problem", ErrAnswer)
		}
	}
	return results, nil
}
