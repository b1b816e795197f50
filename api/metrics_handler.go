package api

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"dibs/api/auth"
)

// MetricsHandler serves /metrics and /healthz for a role that has no other HTTP, on addr. As on the API, /metrics needs the viewer's
// token when tokens are set. Errors: as of New.
func MetricsHandler(addr string, tokens Tokens, log *slog.Logger, gatherer prometheus.Gatherer) (http.Handler, error) {
	gate, err := auth.New(auth.Config{Addr: addr, Tokens: tokens, Logger: log})
	if err != nil {
		return nil, err
	}
	scrape, mux := promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}), http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if p := gate.Check(r, auth.Viewer); p != nil {
			p.Write(w)
			return
		}
		scrape.ServeHTTP(w, r)
	})
	return mux, nil
}
