package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// ErrAnswer is wrapped if the answer isn't from the service, or is from
// another version of it.
var ErrAnswer = errors.New("client: not an answer of the service")

// unsentError means that nothing of a request was sent, so certainly
// nothing was done.
type unsentError struct{ cause error }

// Error reports why.
func (e *unsentError) Error() string { return "client: not sent: " + e.cause.Error() }

// Unwrap makes it ErrUnavailable.
func (e *unsentError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }

// resentError means that net/http sent the request more than once, so an
// earlier sending may have taken effect.
type resentError struct{ error }

// Unwrap returns the last answer.
func (e *resentError) Unwrap() error { return e.error }

// call is one call of the service, which may be sent several times.
type call struct {
	method, path string
	query        url.Values
	key          string // idempotency key; "": none
	isClaim      bool   // ErrUnavailable means that it did nothing
	keysInside   bool   // each part of the body has its own key
	body         any    // nil: none
	answerMax    int    // limit of an answer that may be longer than others
	status       int    // of the answer
}

// segment escapes any text as one part of a path.
func segment(text string) string {
	if text == "." || text == ".." {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return url.PathEscape(text)
}

type answer struct {
	status   int
	replayed bool
	// of a batch with some replays: a 1 for each, a 0 for each other claim
	replays string
	resent  bool // see resentError
	body    []byte
}

func (a *answer) read(out any) error {
	if err := json.Unmarshal(a.body, out); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return nil
}

// replaced matches what encoding/json writes for a byte that is no UTF-8.
var replaced = regexp.MustCompile(`(^|[^\\])(\\\\)*\\ufffd`)

// encode refuses texts that are not UTF-8. encoding/json replaces their
// bytes: the claim would be another user's.
func encode(body any) ([]byte, error) {
	text, err := json.Marshal(body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("client: %w", err)
	case bytes.Contains(text, []byte(`\ufffd`)) && replaced.Match(text):
		return nil, &Problem{Code: ErrMalformed, Status: http.StatusBadRequest, Detail: "A text is not UTF-8."}
	}
	return text, nil
}

func (c *Client) request(ctx context.Context, q *call, body []byte) (*http.Request, error) {
	address := c.base + q.path
	if len(q.query) > 0 {
		address += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, address, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case q.key != "":
		req.Header.Set("Idempotency-Key", q.key)
	case q.keysInside:
		// net/http sends no such header, but it resends such a request if a
		// kept connection is found closed.
		req.Header["Idempotency-Key"] = nil
	}
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	return req, nil
}

// once sends a call once. Errors: *Problem, ErrAnswer, *unsentError,
// *resentError, and those of a connection.
func (c *Client) once(ctx context.Context, q *call, body []byte) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, &unsentError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	req, err := c.request(ctx, q, body)
	if err != nil {
		return answer{}, err
	}
	// net/http resends by itself if a kept connection breaks, and reports
	// only the last try. A transport without tracing may have sent the
	// request.
	var attempted atomic.Bool
	var sent atomic.Int32
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { attempted.Store(true) }, WroteHeaders: func() { sent.Add(1) },
	}))
	res, err := c.http.Do(req)
	switch {
	case err != nil && attempted.Load() && sent.Load() == 0:
		return answer{}, &unsentError{err}
	case err != nil:
		return answer{}, fmt.Errorf("client: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	most := cmp.Or(q.answerMax, answerMax)
	text, err := io.ReadAll(io.LimitReader(res.Body, int64(most)+1))
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("client: %w", err)
	case len(text) > most:
		return answer{}, fmt.Errorf("%w: it is longer than %d bytes", ErrAnswer, most)
	case res.StatusCode/100 != 2 && sent.Load() > 1:
		return answer{}, &resentError{problemOf(res, text)}
	case res.StatusCode/100 != 2:
		return answer{}, problemOf(res, text)
	}
	return answer{
		status: res.StatusCode, replayed: res.Header.Get("Idempotent-Replayed") == "true",
		replays: res.Header.Get("Idempotent-Replayed-Claims"), resent: sent.Load() > 1, body: text,
	}, nil
}

type problemJSON struct { //nolint:errname // its embedded Problem is the error
	Problem
	Limit

	RetryAfterMs int64 `json:"retry_after_ms"`
}

func (p *problemJSON) problem() *Problem {
	found := p.Problem
	found.Limit = p.Limit
	found.RetryAfter = time.Duration(p.RetryAfterMs) * time.Millisecond
	return &found
}

// problemOf reads a refusal. A refusal by something else, such as a
// gateway, has only a status.
func problemOf(res *http.Response, body []byte) error {
	var wire problemJSON
	// a date is ignored
	seconds, _ := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 31)
	after := time.Duration(seconds) * time.Second
	if err := json.Unmarshal(body, &wire); err != nil || wire.Code == "" {
		return &strangeAnswer{fmt.Errorf("%w: status %d without a problem", ErrAnswer, res.StatusCode), res.StatusCode, after}
	}
	p := wire.problem()
	p.Status = res.StatusCode
	p.RetryAfter = max(p.RetryAfter, after)
	return p
}

type strangeAnswer struct { //nolint:errname // it is an answer first
	error

	status     int
	retryAfter time.Duration
}

// Unwrap makes it an ErrAnswer.
func (s *strangeAnswer) Unwrap() error { return s.error }
