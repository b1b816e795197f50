package bench_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// benchAllocations counts what a claim allocates in Go: on its way in, and on its way into MySQL.
func benchAllocations(b *testing.B, s *sheet) {
	s.rounds = 1 // these figures hardly change
	r := newBroker(b)
	st := stores(b)[0]
	s.Facts = []string{r.version(b), st.version(b)}
	for _, keyed := range []bool{false, true} {
		name := map[bool]string{false: "API, without keys", true: "API, with keys"}[keyed]
		s.allocated(name, postClaims(b, r, keyed))
	}
	s.allocated("Consumer and writer", runPipeline(b, r, st, amount(100_000), false))
	s.note("API: handler, coalescer, script client, for 50 callers at once; without what net/http itself allocates for a request.")
}

func (s *sheet) allocated(name string, run pipelineRun) {
	s.add(name+": allocations", "/claim", float64(run.mallocs)/float64(run.claims))
	s.add(name+": bytes", "bytes/claim", float64(run.malloc)/float64(run.claims))
}

// postClaims hands claims to the API's handler, without a network. Making the requests is counted first and taken off.
func postClaims(b *testing.B, r *broker, keyed bool) pipelineRun {
	b.Helper()
	server, err := apiOver(childSettings{RedisURL: r.server.URL()})
	require.NoError(b, err)
	m := r.campaign(b, plenty)
	claims := amount(100_000)
	load := func(prefix string, h http.Handler) pipelineRun {
		return measure(int64(claims), func() { callHandler(b, h, m.ID, prefix, claims, keyed) })
	}
	nothing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	load("warm-", server.Handler())
	requests := load("none-", nothing)
	run := load("user-", server.Handler())
	run.mallocs -= requests.mallocs
	run.malloc -= requests.malloc
	require.Equal(b, 2*int64(claims), r.taken(b, m))
	r.forget(b, m)
	return run
}

// callers is how many claims are on their way at once.
const callers = 50

func callHandler(b *testing.B, h http.Handler, campaign, prefix string, claims int, keyed bool) {
	b.Helper()
	var next atomic.Int64
	var group errgroup.Group
	for range callers {
		group.Go(func() error {
			for i := next.Add(1); i <= int64(claims); i = next.Add(1) {
				user := fmt.Sprint(prefix, i)
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/campaigns/"+campaign+"/claims",
					strings.NewReader(`{"user_id":"`+user+`"}`))
				if err != nil {
					return err
				}
				if keyed {
					req.Header["Idempotency-Key"] = []string{user}
				}
				w := statusOnly{header: http.Header{}}
				if h.ServeHTTP(&w, req); w.status != http.StatusCreated {
					return fmt.Errorf("%w: status %d", errRefused, w.status)
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
}

// statusOnly takes an answer and keeps its status.
type statusOnly struct {
	header http.Header
	status int
}

func (w *statusOnly) Header() http.Header         { return w.header }
func (w *statusOnly) WriteHeader(status int)      { w.status = status }
func (w *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
