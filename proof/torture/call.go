package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"
)

// The codes of requests that no one answered.
const (
	unheard   = "unheard"   // it may have been done
	unreached = "unreached" // not a byte was sent
)

// What an API says when it does not know, or can't.
const (
	unavailable    = "unavailable"
	outcomeUnknown = "outcome_unknown"
)

// callWithin is how long a client waits for an answer.
const callWithin = 4 * time.Second

// reply is the answer to one request: a status and a body, or else a code.
type reply struct {
	status   int
	code     string // of a refusal, or of no answer; "" is success
	body     []byte
	replayed bool
}

// certain reports whether the caller knows now what became of the request.
func (r *reply) certain() bool { return certain(r.code) }

func certain(code string) bool {
	return !slices.Contains([]string{unheard, unreached, unavailable, outcomeUnknown}, code)
}

// doubtful reports whether the request may have been done without the caller knowing.
func doubtful(code string) bool { return code == unheard || code == outcomeUnknown }

// caller sends requests, one at a time.
type caller struct{ client *http.Client }

func newCaller() *caller {
	return &caller{&http.Client{Timeout: callWithin, Transport: &http.Transport{MaxIdleConnsPerHost: 2}}}
}

func (c *caller) close() { c.client.CloseIdleConnections() }

// send sends a request once and waits for its answer.
func (c *caller) send(ctx context.Context, method, url, key string, body any) reply {
	encoded := []byte(nil)
	if body != nil {
		var err error
		encoded, err = json.Marshal(body)
		if err != nil {
			return reply{code: err.Error()}
		}
	}
	var sent atomic.Int32 // net/http sends again by itself when a kept connection breaks, and reports the last try only
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }})
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(encoded))
	if err != nil {
		return reply{code: err.Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := c.client.Do(req)
	switch {
	case err != nil && sent.Load() == 0:
		return reply{code: unreached}
	case err != nil:
		return reply{code: unheard}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return reply{code: unheard}
	}
	r := reply{status: res.StatusCode, body: text, replayed: res.Header.Get("Idempotent-Replayed") == "true"}
	if r.status/100 != 2 {
		r.code = codeIn(text)
		if sent.Load() > 1 && !r.certain() { // the first may have been done
			r.code = unheard
		}
	}
	return r
}

func codeIn(body []byte) string {
	var problem struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(body, &problem) != nil || problem.Code == "" {
		return fmt.Sprintf("not a problem: %.200s", body)
	}
	return problem.Code
}
