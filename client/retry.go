package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// fate is what an attempt's error means.
type fate struct {
	again bool          // the same again may be answered otherwise
	maybe bool          // it may have been done
	after time.Duration // not again before
}

func fateOf(err error) fate {
	var p *Problem
	var s *strangeAnswer
	var unsent *unsentError
	var resent *resentError
	switch {
	case errors.As(err, &resent):
		f := fateOf(resent.error)
		f.maybe = f.maybe || f.again
		return f
	case errors.As(err, &p):
		return fateOfStatus(p.Status, p.Code, p.RetryAfter)
	case errors.As(err, &s):
		return fateOfStatus(s.status, "", s.retryAfter)
	case errors.As(err, &unsent):
		return fate{again: true}
	case errors.Is(err, ErrAnswer):
		return fate{maybe: true}
	default: // a connection that broke, or silence
		return fate{again: true, maybe: true}
	}
}

func fateOfStatus(status int, code Code, after time.Duration) fate {
	switch {
	case status == http.StatusTooManyRequests, code == ErrUnavailable:
		return fate{again: true, after: after}
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return fate{again: true, maybe: true, after: after}
	default:
		return fate{maybe: status/100 != 4}
	}
}

// persist calls try until it says that it is over, as often as Config allows, and reports how often it did. It waits in between,
// but never in vain: not when the context would be over before the next attempt.
func (c *Client) persist(ctx context.Context, try func() fate) (attempts int) {
	delays := backoff.ExponentialBackOff{
		InitialInterval: c.cfg.InitialBackoff, MaxInterval: c.cfg.MaxBackoff, Multiplier: 2, RandomizationFactor: 0.5,
	}
	for attempts = 1; ; attempts++ {
		f := try()
		// What the service asks for is the same for all whom it asks, so they come apart by the back-off on top of it.
		if !f.again || attempts >= c.cfg.Attempts || !wait(ctx, f.after+delays.NextBackOff()) {
			return attempts
		}
	}
}

// wait reports whether the context lasts so long.
func wait(ctx context.Context, d time.Duration) bool {
	if deadline, bounded := ctx.Deadline(); bounded && time.Until(deadline) <= d {
		return false
	}
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// doubt says whether an attempt without a conclusive answer may have done what it asked for.
type doubt struct{ maybe bool }

// end is the error of a call that ended with err.
func (d doubt) end(q *call, attempts int, err error) error {
	if f := fateOf(err); q.writes && (d.maybe && f.again || f.maybe) {
		return &OutcomeError{Key: q.key, Attempts: attempts, Last: err}
	}
	return err
}

// ask calls try, which makes one attempt of the call, until it is answered.
func (c *Client) ask(ctx context.Context, q *call, try func() error) (err error) {
	var d doubt
	attempts := c.persist(ctx, func() fate {
		err = try()
		if err == nil {
			return fate{}
		}
		f := fateOf(err)
		d.maybe = d.maybe || f.maybe
		return f
	})
	if err != nil {
		return d.end(q, attempts, err)
	}
	return nil
}

// do sends a call until it is answered and reads the answer into out, unless that is nil.
func (c *Client) do(ctx context.Context, q *call, out any) (a answer, err error) {
	var body []byte
	if q.body != nil {
		body, err = json.Marshal(q.body)
		if err != nil {
			return answer{}, fmt.Errorf("client: %w", err)
		}
	}
	err = c.ask(ctx, q, func() (err error) {
		a, err = c.once(ctx, q, body)
		if err != nil || out == nil {
			return err
		}
		return a.read(out)
	})
	if err != nil {
		return answer{}, err
	}
	return a, nil
}
