package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"dibs/api/wire"
)

// health is the answer of /healthz and /readyz.
type health struct {
	Status string `json:"status" enum:"ok,ready"`
}

// readyWithin bounds the question whether claims can be taken.
const readyWithin = 2 * time.Second

// getHealth is GET /healthz: the process is up.
func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) int {
	return writeJSON(w, `{"status":"ok"}`)
}

// getReady is GET /readyz: claims can be taken. A process that is stopping says no first of all.
func (s *Server) getReady(w http.ResponseWriter, r *http.Request) int {
	if s.stopping.Load() {
		return (&wire.Problem{Code: wire.CodeUnavailable, Detail: "The service is stopping."}).Write(w)
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	if err := s.deps.Ready(ctx); err != nil {
		s.complain.Do(func() { s.log.Warn("not ready", slog.Any("error", err)) })
		return (&wire.Problem{Code: wire.CodeUnavailable, Detail: "Claims can't be taken now; the log says why."}).Write(w)
	}
	return writeJSON(w, `{"status":"ready"}`)
}

func writeJSON(w http.ResponseWriter, body string) int {
	w.Header()["Content-Type"] = wire.JSONContentType
	_, _ = w.Write([]byte(body)) // a client that is gone needs no answer
	return http.StatusOK
}
