package finance

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type booksMetrics struct {
	entries, redelivered, retries prometheus.Counter
	seconds                       prometheus.Histogram

	totals struct{ credited, redelivered, refused atomic.Int64 } // events; refused permanently
}

// newBooksMetrics registers the metrics unless reg is nil.
func newBooksMetrics(reg prometheus.Registerer) *booksMetrics {
	f := promauto.With(reg)
	return &booksMetrics{
		entries: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_finance_entries_total", Help: "Entries put into account_entries.",
		}),
		redelivered: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_finance_redelivered_total", Help: "Events that came again after they were credited.",
		}),
		retries: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_finance_retries_total", Help: "Transactions that failed and are tried again, at once or when the events come again.",
		}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "dibs_finance_batch_seconds", Help: "Time of a batch, from taking its events to answering for them.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
	}
}
