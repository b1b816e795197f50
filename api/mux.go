package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"dibs/api/auth"
	"dibs/api/claiming/form"
	"dibs/api/console"
	"dibs/api/live"
	"dibs/api/route"
	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/internal/tracing"
)

// mux registers the table of routes. Unknown requests get a problem.
func (s *Server) mux(routes []route.Served) http.Handler {
	mux := http.NewServeMux()
	served := make(map[string]http.HandlerFunc, len(routes)) // by pattern
	for i := range routes {
		rt := &routes[i]
		handle := s.serve(rt.Path, rt.Scope, rt.Run)
		if strings.HasSuffix(rt.Path, "{id}/watch") {
			handle = s.byTicket(rt.Path, handle)
		}
		served[rt.Pattern] = handle
		mux.HandleFunc(rt.Pattern, handle)
	}
	if s.console != nil {
		page := s.serve(console.Path, auth.Open, s.console.Serve) // the console has its own sign-in
		mux.HandleFunc(console.Path, page)
		mux.HandleFunc(console.Path+"/", page)
	}
	mux.HandleFunc("GET /{$}", s.serve("/", auth.Open, s.toConsole))
	unknown := s.serve("other", auth.Open, func(w http.ResponseWriter, r *http.Request) int { return refuseUnknown(mux, w, r) })
	known := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" || !isClean(r.URL.EscapedPath()) {
			unknown(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	all := form.FastPath(served["POST "+form.Path], routeSlashUserID(served["GET "+userClaimsPath], known))
	if s.gate.Open() {
		all = refuseOtherSites(s.cfg.CORSOrigins, all)
	}
	return s.identified(allowOrigins(s.cfg.CORSOrigins, all))
}

// refuseUnknown answers 405 with Allow if another method would match, else
// 404. ServeMux would redirect a path with //, . or .. to its clean form.
// That was rejected: such a path is a client's mistake, and a client that
// follows redirects would claim under a path that it didn't request.
func refuseUnknown(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) int {
	theirs := &headerOnly{header: http.Header{}}
	if isClean(r.URL.EscapedPath()) {
		mux.ServeHTTP(theirs, r)
	}
	if theirs.status != http.StatusMethodNotAllowed {
		return wire.Refuse(wire.CodeNotFound).Write(w)
	}
	w.Header()["Allow"] = theirs.header["Allow"]
	return wire.Refuse(wire.CodeMethodNotAllowed).Write(w)
}

// isClean reports whether ServeMux would leave an escaped path as it is.
func isClean(escaped string) bool {
	clean := path.Clean(escaped)
	return strings.HasPrefix(escaped, "/") && (escaped == clean || escaped == clean+"/")
}

// statusClientGone is the status in metrics and logs of a request whose
// client disconnected before the answer. It is no failure of the server.
const statusClientGone = 499

// serve wraps a route: it measures the time, checks the scope, and converts
// a panic to an answer.
func (s *Server) serve(path string, need auth.Scope, run route.Endpoint) http.HandlerFunc {
	timer := s.metrics.timer(path)
	tracer := s.tracerFor(path)
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		status := http.StatusInternalServerError
		r, span := tracer.Request(r, path, caller.Of(r.Context()).RequestID)
		defer func() {
			if v := recover(); v != nil {
				s.panicked(w, r, v)
			}
			if status >= http.StatusInternalServerError && errors.Is(r.Context().Err(), context.Canceled) {
				status = statusClientGone
			}
			took := time.Since(start)
			span.Answered(status)
			if status != live.Streamed { // the length of a stream says nothing about the service
				timer.observe(status, took)
			}
			s.logAccess(r, path, status, took)
		}()
		if s.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		if p := s.gate.Check(r, need); p != nil {
			status = p.Write(w)
			return
		}
		status = run(w, r)
	}
}

// whileAllowed ends a stream once its caller may no longer read it: the
// token was revoked, expired, or lost the scope.
func (s *Server) whileAllowed(need auth.Scope, run route.Endpoint) route.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) int {
		caller.Of(r.Context()).Still = func() bool { return s.gate.Check(r, need) == nil }
		return run(w, r)
	}
}

// tracerFor is nil for probes and for streams, which last as long as their
// client reads.
func (s *Server) tracerFor(path string) *tracing.Tracer {
	if !strings.HasPrefix(path, "/v1/") || strings.HasSuffix(path, "/watch") {
		return nil
	}
	return s.cfg.Tracer
}

func (s *Server) panicked(w http.ResponseWriter, r *http.Request, v any) {
	if v == http.ErrAbortHandler { //nolint:errorlint // the very value
		panic(v)
	}
	s.cfg.Logger.ErrorContext(r.Context(), "a request failed with a panic and is answered 500",
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.String("panic", fmt.Sprint(v)),
		slog.String("stack", string(debug.Stack())))
	wire.Refuse(wire.CodeInternal).Write(w)
}

type headerOnly struct {
	header http.Header
	status int
}

func (h *headerOnly) Header() http.Header { return h.header }

func (h *headerOnly) WriteHeader(status int) { h.status = status }

func (h *headerOnly) Write(b []byte) (int, error) { return len(b), nil }
