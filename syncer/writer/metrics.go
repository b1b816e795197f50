package writer

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	flushSeconds prometheus.Histogram
	batchClaims  prometheus.Histogram
	claims       prometheus.Counter
	units        prometheus.Counter
	replays      prometheus.Counter
	moved        prometheus.Counter
	unanswered   prometheus.Counter
	parked       *prometheus.CounterVec
	retries      *prometheus.CounterVec

	dropped atomic.Int64 // events answered with an error when the writer closed
}

func newMetrics(reg prometheus.Registerer, oldestAge func() time.Duration, locked func() int) *metrics {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dibs_writer_oldest_unsynced_seconds",
		Help: "Age of the oldest event that waits in the writer; 0 when none does.",
	}, func() float64 { return oldestAge().Seconds() })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dibs_writer_locked_campaigns",
		Help: "Campaigns and shards whose counters in MySQL wait because another transaction holds a lock on them.",
	}, func() float64 { return float64(locked()) })
	return &metrics{
		flushSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "dibs_flush_seconds", Help: "Time of a flush, from taking the events to the commit, retries included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		batchClaims: f.NewHistogram(prometheus.HistogramOpts{
			Name: "dibs_flush_claims", Help: "Claims in a flush.",
			Buckets: []float64{1, 10, 50, 100, 250, 500, 1000, 1500, 2000, 5000, 10000, 20000},
		}),
		claims: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_written_total", Help: "Claims put into MySQL.",
		}),
		units: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_units_written_total", Help: "Units of the claims put into MySQL.",
		}),
		replays: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_redelivered_total", Help: "Claims that were read again after they were put into MySQL.",
		}),
		moved: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_flush_offset_moved_total",
			Help: "Batches of a partition that were dropped because another process had moved its offset.",
		}),
		unanswered: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_dropped_total",
			Help: "Claims that were never answered and not put into MySQL: Redis lost claims, and sold their units again.",
		}),
		parked: f.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_events_parked_total", Help: "Events that could never be written and wait in parked_events.",
		}, []string{"reason"}),
		retries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_flush_retries_total",
			Help: "Statements or flushes tried again: clash is a deadlock or lock wait, trouble anything else.",
		}, []string{"cause"}),
	}
}
