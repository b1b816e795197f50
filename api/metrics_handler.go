package api

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"dibs/api/auth"
	"dibs/api/wire"
)

// Side is the HTTP of a role without an API: /metrics, /healthz, /readyz
// and /v1/info.
type Side struct {
	Addr     string
	Tokens   Tokens
	Logger   *slog.Logger
	Gatherer prometheus.Gatherer
	Info     Info
	// Live returns why the process should be restarted, or nil.
	Live func() error
	// Ready returns why the role can't work now. nil: it can, or it waits
	// for an unreachable server.
	Ready func(ctx context.Context) error
	// Away names the unreachable servers.
	Away func(ctx context.Context) []string
}

// Handler serves Side. As in the API, if tokens are set, /metrics needs the
// viewer's and /v1/info any. Errors: as of New.
func (s Side) Handler() (http.Handler, error) {
	gate, err := auth.New(auth.Config{Addr: s.Addr, Tokens: s.Tokens, Logger: s.Logger})
	if err != nil {
		return nil, err
	}
	scrape := promhttp.HandlerFor(s.Gatherer, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", probe(func(context.Context) error { return s.Live() }, func(_ context.Context, w http.ResponseWriter) {
		writeJSON(w, `{"status":"ok"}`)
	}))
	mux.HandleFunc("GET /readyz", probe(s.Ready, func(ctx context.Context, w http.ResponseWriter) { writeReady(w, s.Away(ctx)) }))
	guarded := func(pattern string, scope auth.Scope, serve http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if p := gate.Check(r, scope); p != nil {
				p.Write(w)
				return
			}
			serve(w, r)
		})
	}
	guarded("GET /metrics", auth.Viewer, scrape.ServeHTTP)
	guarded("GET /v1/info", infoScope, s.serveInfo)
	return mux, nil
}

// Probes serves only a handler's paths for orchestrators.
func Probes(all http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			r.Host = "127.0.0.1" // a probe's Host is the pod's, which is no page of another site
			all.ServeHTTP(w, r)
		})
	}
	return mux
}

// probe answers that all is well, or why not. It needs no token: it names
// loops and servers, no secrets.
func probe(check func(ctx context.Context) error, well func(ctx context.Context, w http.ResponseWriter)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := check(ctx); err != nil {
			(&wire.Problem{Code: wire.CodeUnavailable, Detail: err.Error()}).Write(w)
			return
		}
		well(ctx, w)
	}
}
