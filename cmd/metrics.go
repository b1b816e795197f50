package cmd

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dibs/lua"
)

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
