package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// ClaimResult is what became of one claim of a batch: a Claim, or Err as Claim has it.
type ClaimResult struct {
	Claim Claim
	Err   error
}

// batch is claims of one call and what is known of them so far.
type batch struct {
	calls   []call
	bodies  []claimBody
	results []ClaimResult
	doubts  []doubt
	open    []int // those that may still be answered otherwise
}

// ClaimBatch makes up to 1,000 claims in one request, each on its own, and answers each in order. Claims that the service could not
// take now are asked for again, and only they.
func (c *Client) ClaimBatch(ctx context.Context, reqs []ClaimRequest) []ClaimResult {
	b := newBatch(reqs)
	if len(reqs) == 0 {
		return b.results
	}
	attempts := c.persist(ctx, func() fate { return b.try(ctx, c) })
	for i := range b.results {
		if err := b.results[i].Err; err != nil {
			b.results[i].Err = b.doubts[i].end(&b.calls[i], attempts, err)
		}
	}
	return b.results
}

func newBatch(reqs []ClaimRequest) *batch {
	b := &batch{
		calls: make([]call, len(reqs)), bodies: make([]claimBody, len(reqs)), results: make([]ClaimResult, len(reqs)),
		doubts: make([]doubt, len(reqs)), open: make([]int, len(reqs)),
	}
	for i, req := range reqs {
		def(&req.Key, newKey())
		b.open[i] = i
		b.calls[i] = call{key: req.Key, writes: true}
		b.bodies[i] = claimBody(req)
	}
	return b
}

// try sends what is open and sorts the answers.
func (b *batch) try(ctx context.Context, c *Client) fate {
	answers, err := b.send(ctx, c)
	var whole fate
	asked := b.open
	b.open = nil
	for i, at := range asked {
		if err == nil {
			b.results[at] = answers[i]
		} else {
			b.results[at] = ClaimResult{Err: err}
		}
		if b.results[at].Err == nil {
			continue
		}
		f := fateOf(b.results[at].Err)
		b.doubts[at].maybe = b.doubts[at].maybe || f.maybe
		if f.again {
			b.open = append(b.open, at)
			whole.again = true
			whole.after = max(whole.after, f.after)
		}
	}
	return whole
}

func (b *batch) send(ctx context.Context, c *Client) ([]ClaimResult, error) {
	bodies := make([]claimBody, len(b.open))
	for i, at := range b.open {
		bodies[i] = b.bodies[at]
	}
	return c.sendBatch(ctx, bodies)
}

// sendBatch sends claims in one request, once.
func (c *Client) sendBatch(ctx context.Context, bodies []claimBody) ([]ClaimResult, error) {
	request := struct {
		Claims []claimBody `json:"claims"`
	}{bodies}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
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
	results := make([]ClaimResult, len(wire.Results))
	for i, r := range wire.Results {
		switch {
		case r.Claim != nil:
			results[i].Claim = *r.Claim
			results[i].Claim.Replayed = a.replayed || i < len(a.replays) && a.replays[i] == '1'
		case r.Problem != nil:
			results[i].Err = r.Problem.problem()
			if a.resent {
				results[i].Err = &resentError{results[i].Err}
			}
		default:
			results[i].Err = fmt.Errorf("%w: a result without claim and problem", ErrAnswer)
		}
	}
	return results, nil
}
