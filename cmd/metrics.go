package cmd

import (
	"errors"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"dibs/internal/build"
	"dibs/lua"
)

// newRegistry has what every process tells: of Go, of itself, and of what it was built from.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := build.Of()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "dibs_build_info", Help: "What this program was built from. Always 1.",
			ConstLabels: prometheus.Labels{"version": info.Version, "commit": info.Commit, "date": info.Date, "go": runtime.Version()},
		}, func() float64 { return 1 }))
	return registry
}

// observeScripts times every script call, by how it ended.
func observeScripts(registry prometheus.Registerer) func(script string, took time.Duration, err error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "dibs_script_seconds", Help: "Time of a script call as the caller sees it, by script and result.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 3},
	}, []string{"script", "result"})
	registry.MustRegister(seconds)
	return func(script string, took time.Duration, err error) {
		seconds.WithLabelValues(script, scriptResult(err)).Observe(took.Seconds())
	}
}

func scriptResult(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, lua.ErrUnavailable):
		return "unavailable"
	default:
		return "unknown"
	}
}
