package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/models"
)

func NewServer(t testing.TB, room *Room, cfg api.Config) http.Handler {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	s, err := api.New(cfg, room.Deps())
	require.NoError(t, err)
	return AtHome(s.Handler())
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// ask sends one request; headers are "Name: value".
func Ask(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, path, r)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func Coupon(id string, total int64) models.Campaign { return models.Campaign{ID: id, Total: total} }

// athome lets httptest's requests come to 127.0.0.1 instead of example.com.
func AtHome(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "example.com" {
			r.Host = "127.0.0.1:8080"
		}
		h.ServeHTTP(w, r)
	})
}

const OneClaim = `{"user_id":"u1"}`

type Problem struct {
	Type, Title, Detail, Code, Field string
	Status                           int
	ClaimID                          string `json:"claim_id"`
	RetryAfterMs                     int    `json:"retry_after_ms"`
}

// requireProblem checks a refusal against the contract and returns it.
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
		require.Equal(t, seconds+"000", fmt.Sprint(p.RetryAfterMs), "the body says the same")
	} else {
		require.NotContains(t, string(body), "retry_after_ms")
	}
	return p
}

// clock is a clock that tests move.
type Clock struct {
	mu sync.Mutex
	At time.Time
}

func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.At
}

func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.At = c.At.Add(d)
}

const ASplit = `{"count":3,"amount":10,"split":"double_mean","min":1,"max":8,"release_at":"2027-01-01T08:00:00.1239+08:00"}`
