package resolve

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"dibs/models/stored"
)

type relayMetrics struct {
	oldest  prometheus.Gauge
	damaged prometheus.Gauge
	applied *prometheus.CounterVec
}

func newRelayMetrics(reg prometheus.Registerer) *relayMetrics {
	f := promauto.With(reg)
	m := &relayMetrics{
		oldest: f.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_outbox_oldest_seconds",
			Help: "Age of the oldest row of outbox that Redis has not had; 0 when there is none, or unless this process leads.",
		}),
		damaged: f.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_outbox_damaged_rows",
			Help: "Rows of outbox that can't be applied, by their content or by the data in Redis: an operator has to act." +
				" 0 unless this process leads.",
		}),
		applied: f.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_outbox_applied_total", Help: "Rows of outbox that this process delivered to Redis, by kind.",
		}, []string{"kind"}),
	}
	for _, kind := range []stored.OutboxKind{stored.OutboxEvent, stored.OutboxRelease} {
		m.applied.WithLabelValues(string(kind))
	}
	return m
}
