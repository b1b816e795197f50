package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/models"
)

// NewServer returns an API's handler over a Fake.
func NewServer(t testing.TB, fake *Fake, cfg api.Config) http.Handler {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	s, err := api.New(cfg, fake.Deps())
	require.NoError(t, err)
	return AtHome(s.Handler())
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// Ask sends one request; headers are "Name: value". A watch ends after 50 ms.
func Ask(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	ctx := context.Background()
	if bare, _, _ := strings.Cut(path, "?"); strings.HasSuffix(bare, "/watch") {
		left, leave := context.WithTimeout(ctx, 50*time.Millisecond)
		defer leave()
		ctx = left
	}
	req := httptest.NewRequestWithContext(ctx, method, path, r)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	if err := documented(req, w.Code); err != nil {
		panic(err) // in any test
	}
	return w
}

// document is the OpenAPI document that all tests' replies must match.
var document = sync.OnceValues(func() (routers.Router, error) {
	s, err := api.New(api.Config{}, NewFake().Deps())
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	AtHome(s.Handler()).ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/openapi.json", nil))
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	if err != nil {
		return nil, err
	}
	return gorillamux.NewRouter(doc)
})

// documented returns an error if the document has the request's
// route without the reply's status.
func documented(req *http.Request, status int) error {
	router, err := document()
	if err != nil {
		return err
	}
	route, _, err := router.FindRoute(req)
	if err != nil || status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		return nil //nolint:nilerr // no route takes it, which is another test's matter
	}
	if route.Operation.Responses.Status(status) == nil {
		return fmt.Errorf("apitest: %s %s answers %d, which the document does not have", req.Method, route.Path, status)
	}
	return nil
}

// Coupon returns a coupon campaign.
func Coupon(id string, total int64) models.Campaign { return models.Campaign{ID: id, Total: total} }

// AtHome sends httptest's requests to 127.0.0.1 instead of example.com.
func AtHome(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "example.com" {
			r.Host = "127.0.0.1:8080"
		}
		h.ServeHTTP(w, r)
	})
}

// OneClaim is a request body of one unit.
const OneClaim = `{"user_id":"u1"}`

// Problem is a refusal as decoded by a client.
type Problem struct {
	Type         string `json:"type"`
	Title        string `json:"title"`
	Detail       string `json:"detail"`
	Code         string `json:"code"`
	Field        string `json:"field"`
	Status       int    `json:"status"`
	ClaimID      string `json:"claim_id"`
	RetryAfterMs int    `json:"retry_after_ms"`
}

// RequireProblem checks a refusal against the contract and returns it.
func RequireProblem(t testing.TB, status int, header http.Header, body []byte, code string) Problem {
	t.Helper()
	var p Problem
	require.NoError(t, json.Unmarshal(body, &p), "%s", body)
	require.Equal(t, code, p.Code, "%s", body)
	require.Equal(t, status, p.Status)
	require.Equal(t, "application/problem+json", header.Get("Content-Type"))
	require.Equal(t, "urn:dibs:problem:"+code, p.Type)
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Detail)
	require.Equal(t, status == 503 || status == 429, header.Get("Retry-After") != "", "Retry-After")
	if seconds := header.Get("Retry-After"); seconds != "" {
		require.Equal(t, seconds+"000", strconv.Itoa(p.RetryAfterMs), "the body says the same")
	} else {
		require.NotContains(t, string(body), "retry_after_ms")
	}
	return p
}

// Answered sends a request that must be answered with this status.
func Answered(t testing.TB, status int, h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := Ask(h, method, path, body, headers...)
	require.Equal(t, status, w.Code, "%s %s: %s", method, path, w.Body)
	return w
}

// Refused sends a request that must be refused.
func Refused(t testing.TB, status int, code string, h http.Handler, method, path, body string, headers ...string) Problem {
	t.Helper()
	w := Answered(t, status, h, method, path, body, headers...)
	return RequireProblem(t, status, w.Header(), w.Body.Bytes(), code)
}

// ASplit is a request body for packets.
const ASplit = `{"count":3,"amount":10,"split":"double_mean","min":1,"max":8,"release_at":"2027-01-01T08:00:00.1239+08:00"}`
