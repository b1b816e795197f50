package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
)

type healthJSON struct {
	Status string   `json:"status" enum:"ok,ready"`
	Away   []string `json:"away,omitempty" doc:"servers that are away, while the rest of the service works"`
}

func documentHealth(oapi *huma.OpenAPI, op *huma.Operation) {
	wire.DocumentAnswer(op, "200", "Yes", wire.JSONContentType[0], wire.SchemaOf[healthJSON](oapi))
}

const readyTimeout = 2 * time.Second

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) int {
	return writeJSON(w, `{"status":"ok"}`)
}

// getReady is GET /readyz: at least some campaigns' claims can be made. A
// stopping process first answers no here.
func (s *Server) getReady(w http.ResponseWriter, r *http.Request) int {
	if s.stopping.Load() {
		return (&wire.Problem{Code: wire.CodeUnavailable, Detail: "The service is stopping. Send claims to another process."}).Write(w)
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	away, err := s.readyAndAway(ctx)
	if err != nil {
		s.logSome.Do(func() { s.cfg.Logger.WarnContext(ctx, "not ready: claims can't be taken", slog.Any("error", err)) })
		detail := "Claims can't be taken now. The log of the service has the cause."
		if len(away) > 0 {
			detail = "Claims can't be taken now: " + strings.Join(away, ", ") + ". The log of the service has the cause."
		}
		return (&wire.Problem{Code: wire.CodeUnavailable, Detail: detail}).Write(w)
	}
	return writeReady(w, away)
}

// readyAndAway asks both at once: they share a check of the servers, which
// may wait for one that hangs, and probes wait for two seconds.
func (s *Server) readyAndAway(ctx context.Context) (away []string, err error) {
	named := make(chan []string, 1)
	go func() { named <- s.away(ctx) }()
	err = s.ready(ctx)
	return <-named, err
}

func writeReady(w http.ResponseWriter, away []string) int {
	body, err := json.Marshal(healthJSON{Status: "ready", Away: away})
	if err != nil { // it marshals always
		body = []byte(`{"status":"ready"}`)
	}
	return writeJSON(w, string(body))
}

func writeJSON(w http.ResponseWriter, body string) int {
	w.Header()["Content-Type"] = wire.JSONContentType
	_, _ = w.Write([]byte(body)) // a disconnected client needs no answer
	return http.StatusOK
}

func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request) int {
	s.scrape.ServeHTTP(w, r)
	return http.StatusOK
}
