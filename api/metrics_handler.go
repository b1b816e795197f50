package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MetricsHandler serves /metrics and /healthz for a role that has no other HTTP. As on the API, /metrics needs the viewer's token
// when tokens are set.
func MetricsHandler(tokens Tokens, gatherer prometheus.Gatherer) http.Handler {
	gate, scrape := newGate(tokens), promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if p := gate.refuse(r, scopeViewer); p != nil {
			p.Write(w)
			return
		}
		scrape.ServeHTTP(w, r)
	})
	return mux
}
