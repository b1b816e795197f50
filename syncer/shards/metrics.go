package shards

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are by the number of a shard, not by campaign, so that labels stay bounded. Those of open moves are of who leads.
type metrics struct {
	begun, units *prometheus.CounterVec // by kind and shard
	open, oldest prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	labels := []string{"kind", "shard"}
	return &metrics{
		begun: with.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_shard_moves_total",
			Help: "Moves of units to shards (grant) and back (recall) that this process began, by the number of the shard.",
		}, labels),
		units: with.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_shard_moved_units_total", Help: "Units of the moves that this process completed, by the number of the shard.",
		}, labels),
		open: with.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_shard_moves_open", Help: "Moves of units that are not completed, as of the last look. 0 on who does not lead.",
		}),
		oldest: with.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_shard_moves_oldest_seconds", Help: "For how long the oldest move that is not completed is open. 0 on who does not lead.",
		}),
	}
}

// count counts a move that was begun, or the units of one that was completed.
func (m *Mover) count(what func(*metrics) *prometheus.CounterVec, move *models.StockMove, n int64) {
	if m.metrics != nil { // a test's own has none
		what(m.metrics).WithLabelValues(string(move.Kind), strconv.Itoa(move.Shard)).Add(float64(n))
	}
}

func begun(m *metrics) *prometheus.CounterVec { return m.begun }
func units(m *metrics) *prometheus.CounterVec { return m.units }

// ResetMetrics sets the figures of open moves to 0: another process leads.
func (m *Mover) ResetMetrics() {
	m.metrics.open.Set(0)
	m.metrics.oldest.Set(0)
}

// measure tells of the moves that are open.
func (m *Mover) measure(ctx context.Context) error {
	var begun []time.Time // few: one a shard at most
	err := m.db.WithContext(ctx).Raw("SELECT m.begun_at FROM campaign_shards s" +
		" JOIN stock_moves m ON m.campaign_id = s.campaign_id AND m.shard = s.shard AND m.no = s.move_no" +
		" WHERE s.move_no <> s.moved_no").Scan(&begun).Error
	if err != nil {
		return fmt.Errorf("shards: open moves: %w", err)
	}
	age := time.Duration(0)
	for _, at := range begun {
		age = max(age, time.Since(at))
	}
	m.metrics.open.Set(float64(len(begun)))
	m.metrics.oldest.Set(age.Seconds())
	return nil
}
