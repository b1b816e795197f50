package shards

import (
	"strconv"
	"time"

	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are by the number of a shard, not by campaign, so that labels stay bounded. Those of units in flight are of the leader.
type metrics struct {
	started, units *prometheus.CounterVec // by kind and shard
	open, oldest   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	labels := []string{"kind", "shard"}
	return &metrics{
		started: with.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_shard_moves_total",
			Help: "Moves of units to a shard from the reserve (grant), from another shard (shift), and to the reserve (recall)," +
				" by the number of the shard.",
		}, labels),
		units: with.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_shard_moved_units_total", Help: "Units of the moves of this process, by the number of the shard.",
		}, labels),
		open: with.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_shard_moves_open",
			Help: "Pairs of lots with units that are on their way between them, at the last check. 0 on who does not lead.",
		}),
		oldest: with.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_shard_moves_oldest_seconds",
			Help: "For how long the same units have been on their way between two lots. 0 on who does not lead.",
		}),
	}
}

// count counts units that went from one lot to another, by the number of the shard that took them; a reserve is no shard.
func (m *Mover) count(from, to int, p *snapshot, n int64) {
	if m.metrics == nil || n == 0 { // a test's own has none
		return
	}
	kind := "shift"
	switch models.ReserveLot {
	case p.number(from):
		kind = "grant"
	case p.number(to):
		kind = "recall"
		to = from
	}
	m.metrics.started.WithLabelValues(kind, strconv.Itoa(p.number(to))).Inc()
	m.metrics.units.WithLabelValues(kind, strconv.Itoa(p.number(to))).Add(float64(n))
}

// ResetMetrics sets the figures of units in flight to 0: another process leads.
func (m *Mover) ResetMetrics() {
	m.metrics.open.Set(0)
	m.metrics.oldest.Set(0)
}

// measure reports the lots that have units in flight.
func (m *Mover) measure() {
	age := time.Duration(0)
	for _, units := range m.inTransit {
		age = max(age, time.Since(units.since))
	}
	m.metrics.open.Set(float64(len(m.inTransit)))
	m.metrics.oldest.Set(age.Seconds())
}
