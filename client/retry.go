package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// fate is what an attempt's error means.
type fate struct {
	again bool          // a retry may succeed
	maybe bool          // it may have taken effect
	after time.Duration // least time before a retry
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
	default: // a broken connection or a timeout
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

// wait waits, and reports whether the context lasted.
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

// ask calls try, which makes one attempt, until it succeeds or Config's
// attempts are used up. It waits between attempts, unless the context would
// end before the next.
func (c *Client) ask(ctx context.Context, q *call, try func() error) error {
	delays := backoff.ExponentialBackOff{
		InitialInterval: c.cfg.InitialBackoff, MaxInterval: c.cfg.MaxBackoff, Multiplier: 2, RandomizationFactor: 0.5,
	}
	maybe := false
	for attempts := 1; ; attempts++ {
		err := try()
		if err == nil {
			return nil
		}
		f := fateOf(err)
		if p, is := errors.AsType[*Problem](err); is && p.Code == ErrUnavailable && !q.isClaim {
			f.maybe = true // such as a change that MySQL has and Redis doesn't
		}
		maybe = maybe || f.maybe
		// Retry-After is the same for all clients. The back-off on top
		// spreads them.
		if f.again && attempts < c.cfg.Attempts && wait(ctx, f.after+delays.NextBackOff()) {
			continue
		}
		if q.method != http.MethodGet && (maybe && f.again || f.maybe) {
			return &OutcomeError{Key: q.key, Attempts: attempts, Last: err}
		}
		return err
	}
}

// send sends a call until it is answered, and decodes the answer if there
// is one.
func send[T any](ctx context.Context, c *Client, q *call) (found T, err error) {
	var body []byte
	if q.body != nil {
		body, err = encode(q.body)
		if err != nil {
			return found, err
		}
	}
	err = c.ask(ctx, q, func() error {
		a, err := c.once(ctx, q, body)
		if err != nil || a.status == http.StatusNoContent {
			return err
		}
		q.status = a.status
		return a.read(&found)
	})
	return found, err
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	return send[T](ctx, c, &call{method: http.MethodGet, path: path, query: query})
}
