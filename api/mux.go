package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"dibs/api/claiming"
	"dibs/api/wire"
)

// mux puts the table of routes on a ServeMux whose own refusals are problems too.
func (s *Server) mux(routes []route, handlers captured) http.Handler {
	mux := http.NewServeMux()
	var claim, userClaims http.HandlerFunc
	strict := http.NewServeMux() // the same without a way out, to know a wrong method from a wrong path
	for i := range routes {
		rt := &routes[i]
		pattern := rt.method + " " + rt.path
		run := rt.run.plain
		if run == nil {
			run = viaHuma(handlers[pattern], rt.bodyMax)
		}
		serve := s.serve(rt.path, rt.scope, run)
		switch rt.path {
		case claiming.Path:
			claim = serve
		case userClaimsPath:
			userClaims = serve
		}
		mux.HandleFunc(pattern, serve)
		strict.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	mux.HandleFunc("/", s.serve("other", scopeOpen, func(w http.ResponseWriter, r *http.Request) int {
		return notRouted(strict, w, r)
	}))
	all := claiming.ClaimsFirst(claim, slashUserFirst(userClaims, s.onlyClean(mux)))
	if s.gate.open {
		return s.withoutStrangers(all)
	}
	return all
}

// onlyClean answers 404 to paths with //, . or .. in them, which ServeMux would redirect to their clean form: a client that
// builds such paths has a mistake in it, and one that follows redirects would claim by a path that it did not ask for.
func (s *Server) onlyClean(mux *http.ServeMux) http.Handler {
	refuse := s.serve("other", scopeOpen, func(w http.ResponseWriter, _ *http.Request) int { return wire.WritePlain(w, wire.CodeNotFound) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isClean(r.URL.EscapedPath()) {
			refuse(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isClean tells whether ServeMux would leave an escaped path as it is.
func isClean(escaped string) bool {
	clean := path.Clean(escaped)
	return strings.HasPrefix(escaped, "/") && (escaped == clean || escaped == clean+"/")
}

// serve wraps what every route has: its time is observed, its scope checked, and a panic becomes an answer.
func (s *Server) serve(path string, need scope, run endpoint) http.HandlerFunc {
	timer := s.metrics.timer(path)
	return func(w http.ResponseWriter, r *http.Request) {
		start, status := time.Now(), http.StatusInternalServerError
		defer func() {
			if v := recover(); v != nil {
				s.panicked(w, r, v)
			}
			timer.observe(status, time.Since(start))
		}()
		if s.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		if code := s.gate.refuse(r, need); code != "" {
			status = wire.WritePlain(w, code)
			return
		}
		status = run(w, r)
	}
}

func (s *Server) panicked(w http.ResponseWriter, r *http.Request, v any) {
	if v == http.ErrAbortHandler { //nolint:errorlint // the very value
		panic(v)
	}
	s.log.Error("panic", slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.String("panic", fmt.Sprint(v)),
		slog.String("stack", string(debug.Stack())))
	wire.WritePlain(w, wire.CodeInternal)
}

// notRouted answers what no route takes: 405 with Allow when another method would do, else 404.
func notRouted(strict *http.ServeMux, w http.ResponseWriter, r *http.Request) int {
	h, pattern := strict.Handler(r)
	if pattern != "" {
		return wire.WritePlain(w, wire.CodeNotFound)
	}
	asked := &headerOnly{header: http.Header{}}
	h.ServeHTTP(asked, r)
	if asked.status != http.StatusMethodNotAllowed {
		return wire.WritePlain(w, wire.CodeNotFound)
	}
	w.Header()["Allow"] = asked.header["Allow"]
	return wire.WritePlain(w, wire.CodeMethodNotAllowed)
}

// headerOnly takes an answer and keeps its status and headers.
type headerOnly struct {
	header http.Header
	status int
}

func (h *headerOnly) Header() http.Header { return h.header }

func (h *headerOnly) WriteHeader(status int) { h.status = status }

func (h *headerOnly) Write(b []byte) (int, error) { return len(b), nil }
