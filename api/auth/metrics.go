package auth

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

//nolint:gochecknoglobals // descriptions are constants
var (
	entriesDesc = prometheus.NewDesc("dibs_credentials_entries",
		"Entries of a source of credentials that are in force: tokens of the tokens file, keys of the issuer.", []string{"source"}, nil)
	failingDesc = prometheus.NewDesc("dibs_credentials_unreadable_seconds",
		"For how long a source of credentials could not be read as it is; 0 when it can.", []string{"source"}, nil)
)

// sources exports the state of the tokens' and keys' sources.
type sources struct {
	gate   *Gate
	tokens Tokens
}

// Describe implements prometheus.Collector.
func (s sources) Describe(ch chan<- *prometheus.Desc) {
	ch <- entriesDesc
	ch <- failingDesc
}

// Collect implements prometheus.Collector. It rereads the sources as a
// request does, so that unused sources are monitored, too.
func (s sources) Collect(ch chan<- prometheus.Metric) {
	entries := func(source string, n int) {
		ch <- prometheus.MustNewConstMetric(entriesDesc, prometheus.GaugeValue, float64(n), source)
	}
	failing := func(source string, since time.Duration) {
		ch <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, since.Seconds(), source)
	}
	if s.tokens.File != "" {
		entries("tokens", s.gate.tokens.Get().listed)
	}
	if len(s.tokens.paths()) > 0 {
		failing("tokens", s.gate.tokens.Failing())
	}
	if s.gate.jwts != nil {
		n, since := s.gate.jwts.source.state()
		entries("jwks", n)
		failing("jwks", since)
	}
}
