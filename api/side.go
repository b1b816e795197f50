package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"dibs/api/wire"
)

// Side serves /metrics and /healthz for a role that has no other HTTP. As on the API, /metrics asks for the viewer's token
// when tokens are set.
func Side(tokens Tokens, gatherer prometheus.Gatherer) http.Handler {
	gate, scrape := newGate(tokens), promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if code := gate.refuse(r, scopeViewer); code != "" {
			wire.WritePlain(w, code)
			return
		}
		scrape.ServeHTTP(w, r)
	})
	return mux
}
