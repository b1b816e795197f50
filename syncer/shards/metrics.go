package shards

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are by shard number, not by campaign, so that labels are
// bounded. Only the leader sets those of open moves.
type metrics struct {
	started, units *prometheus.CounterVec // by shard
	seconds        prometheus.Histogram
	open, oldest   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	labels := []string{"shard"}
	return &metrics{
		started: with.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_shard_moves_total", Help: "Moves of units to a shard, by its number; 0 is out of the total.",
		}, labels),
		units: with.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_shard_moved_units_total", Help: "Units of the moves of this process, by the number of the shard that they went to.",
		}, labels),
		seconds: with.NewHistogram(prometheus.HistogramOpts{
			Name: "dibs_shard_move_seconds", Help: "Time of a move, from the debit to the credit.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
		open: with.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_shard_moves_open",
			Help: "Moves whose units are on their way between two shards, at the last check. 0 unless this process leads.",
		}),
		oldest: with.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_shard_moves_oldest_seconds",
			Help: "For how long units have been on their way between two shards. 0 unless this process leads.",
		}),
	}
}

func (m *Mover) count(to int, units int64) {
	if units > 0 {
		m.metrics.started.WithLabelValues(strconv.Itoa(to)).Inc()
		m.metrics.units.WithLabelValues(strconv.Itoa(to)).Add(float64(units))
	}
}

// ResetMetrics sets the metrics of open
// moves to 0 when another process leads.
func (m *Mover) ResetMetrics() {
	m.metrics.open.Set(0)
	m.metrics.oldest.Set(0)
}
