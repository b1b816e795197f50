package torture

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"dibs/internal/crowd"
)

// Codes of requests without a reply.
const (
	unheard   = "unheard"   // it may have been done
	unreached = "unreached" // not a byte was sent
)

// Codes of an API that does not know, or can't.
const (
	unavailable    = "unavailable"
	outcomeUnknown = "outcome_unknown"
)

// callWithin limits a client's wait for a reply.
const callWithin = 4 * time.Second

// reply is a request's result: status and body, or else a code.
type reply struct {
	status   int
	code     string // of a refusal, or of no reply; "" is success
	body     []byte
	replayed bool
}

// certain reports whether the caller knows the request's outcome.
func (r *reply) certain() bool { return certain(r.code) }

func certain(code string) bool {
	return !slices.Contains([]string{unheard, unreached, unavailable, outcomeUnknown}, code)
}

// doubtful reports whether the request may have been done
// without the caller's knowledge.
func doubtful(code string) bool { return code == unheard || code == outcomeUnknown }

type caller struct{ client *http.Client }

func newCaller() *caller {
	return &caller{&http.Client{Timeout: callWithin, Transport: &http.Transport{MaxIdleConnsPerHost: 2}}}
}

func (c *caller) close() { c.client.CloseIdleConnections() }

// send sends a request once and waits for its reply.
func (c *caller) send(ctx context.Context, method, url, key string, body any) reply {
	res, err := crowd.Call(ctx, c.client, method, url, "", key, body)
	switch {
	case errors.Is(err, crowd.ErrUnsent):
		return reply{code: unreached}
	case err != nil:
		return reply{code: unheard}
	}
	r := reply{status: res.Status, body: res.Body, replayed: res.Replayed}
	if r.status/100 != 2 {
		r.code = crowd.CodeOf(r.body)
		if res.Repeated && !r.certain() { // the first may have been done
			r.code = unheard
		}
	}
	return r
}
