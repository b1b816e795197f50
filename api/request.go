package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"dibs/api/auth"
	"dibs/internal/caller"
	"dibs/models"
)

const (
	requestIDHeader = "X-Request-Id"
	requestIDMax    = 64 // characters
)

// requestIDs makes ids for requests without one: a prefix unique to the
// process, and a count.
type requestIDs struct {
	start string
	count atomic.Uint64
}

func newRequestIDs() *requestIDs {
	var start [8]byte
	_, _ = rand.Read(start[:]) // never fails
	return &requestIDs{start: hex.EncodeToString(start[:]) + "-"}
}

// of is the request's own valid id, or a new one.
func (ids *requestIDs) of(h http.Header) string {
	if sent := h[requestIDHeader]; len(sent) == 1 && utf8.RuneCountInString(sent[0]) <= requestIDMax && models.CheckUserID(sent[0]) == nil {
		return sent[0]
	}
	return ids.start + strconv.FormatUint(ids.count.Add(1), 36)
}

// identified gives each request its id, in the answer and in the context
// for log and audit, and its client's address.
func (s *Server) identified(next http.Handler) http.Handler {
	ids := newRequestIDs()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := ids.of(r.Header)
		w.Header()[requestIDHeader] = []string{id}
		w.Header()["X-Content-Type-Options"] = noSniff
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			w.Header()["Cache-Control"] = noStore
		}
		if r.TLS != nil {
			w.Header()["Strict-Transport-Security"] = onlyTLS
		}
		r = r.WithContext(caller.With(r.Context(), &caller.Caller{RequestID: id}))
		s.cfg.TrustedProxies.take(r)
		next.ServeHTTP(w, r)
	})
}

// Header values shared by all answers, never modified.
var (
	noSniff = []string{"nosniff"}
	noStore = []string{"no-store"}
	onlyTLS = []string{"max-age=31536000"}
)

// logAccess logs an answered request if access logs are enabled. It omits
// the query, which may name people.
func (s *Server) logAccess(r *http.Request, route string, status int, took time.Duration) {
	if !s.cfg.AccessLog {
		return
	}
	s.cfg.Logger.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("method", r.Method), slog.String("route", route),
		slog.String("path", r.URL.Path), slog.Int("status", status), slog.Float64("took_ms", float64(took.Microseconds())/1000),
		slog.String("actor", caller.Of(r.Context()).Actor), slog.String("address", r.RemoteAddr))
}

type refusal struct {
	Address string `json:"address"`
	Reason  string `json:"reason"`
	Count   int    `json:"count"` // since the last row of this address and reason
}

const noteTimeout = 5 * time.Second

// note writes to the audit log in the background.
func (s *Server) note(ctx context.Context, actor, action string, what any) {
	who := &caller.Caller{Actor: actor, RequestID: caller.Of(ctx).RequestID}
	ctx = caller.With(context.WithoutCancel(ctx), who)
	s.workers.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, noteTimeout)
		defer cancel()
		if err := s.audit.Note(ctx, action, what); err != nil {
			s.cfg.Logger.WarnContext(ctx, "writing an audit row failed; is mysql up?", slog.String("action", action), slog.Any("error", err))
		}
	})
}

func (s *Server) noteRefusal(ctx context.Context, r auth.Refusal) {
	s.note(ctx, r.Actor, models.AuditTokenRefused, refusal{r.Address, r.Reason, r.Count})
}

func (s *Server) noteReload(r auth.Reload) {
	s.note(context.Background(), "", models.AuditTokensReloaded, r)
}

func (s *Server) noteSession(r *http.Request, action string) {
	s.note(r.Context(), caller.Of(r.Context()).Actor, action, map[string]string{"address": r.RemoteAddr})
}
