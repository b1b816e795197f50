package residency

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// With a nil Registerer none of these is registered.

func newRebuildSeconds(reg prometheus.Registerer) prometheus.Histogram {
	return promauto.With(reg).NewHistogram(prometheus.HistogramOpts{
		Name: "dibs_rebuild_seconds", Help: "Time of a load of a campaign into Redis, from its number to MySQL's confirmation.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	})
}

func newEvictions(reg prometheus.Registerer) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "dibs_evictions_total", Help: "Campaigns that were taken out of Redis because no one claimed from them.",
	})
}

func newCampaignsLost(reg prometheus.Registerer) prometheus.Gauge {
	return promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "dibs_campaigns_lost",
		Help: "Campaigns that take no claims because Redis lost some of them and MySQL can't prove that it holds all.",
	})
}

func newEventsParked(reg prometheus.Registerer) prometheus.Gauge {
	return promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "dibs_parked_events", Help: "Events in parked_events that MySQL could not take and that were not given up.",
	})
}

func newEntriesLost(reg prometheus.Registerer) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "dibs_stream_entries_lost_total",
		Help: "Entries of claim streams that Redis lost when it was rolled back: a restored snapshot, a replica that lagged, data that is gone.",
	})
}
