package compare

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct{ drift, differ, backlog prometheus.Gauge }

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return promauto.With(reg).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &metrics{
		drift: gauge("dibs_drift_units", "Units by which Redis and MySQL differ at a common watermark, whichever way,"+
			" all campaigns added up. 0 unless this process leads."),
		differ: gauge("dibs_drift_campaigns", "Campaigns whose counters differ by more than claims on their way. 0 unless this process leads."),
		backlog: gauge("dibs_reconcile_backlog_claims",
			"Claims on their way to MySQL, when the campaigns were last compared. 0 unless this process leads."),
	}
}

type sums struct{ drift, differ, backlog int64 }

func (m *metrics) set(s sums) {
	m.drift.Set(float64(s.drift))
	m.differ.Set(float64(s.differ))
	m.backlog.Set(float64(s.backlog))
}

// ResetMetrics sets the metrics to 0 when another process leads.
func (c *Comparer) ResetMetrics() { c.metrics.set(sums{}) }
