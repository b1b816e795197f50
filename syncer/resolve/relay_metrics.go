package resolve

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"dibs/models"
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
			Help: "Age of the oldest row of outbox that Redis has not had; 0 when there is none, and on who does not lead.",
		}),
		damaged: f.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_outbox_damaged_rows",
			Help: "Rows of outbox that can't be applied, by their content or by what Redis holds: people have to look." +
				" 0 on who does not lead.",
		}),
		applied: f.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_outbox_applied_total", Help: "Rows of outbox that this process told Redis, by kind.",
		}, []string{"kind"}),
	}
	for _, kind := range []models.OutboxKind{models.OutboxEvent, models.OutboxRelease} {
		m.applied.WithLabelValues(string(kind))
	}
	return m
}
