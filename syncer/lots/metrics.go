package lots

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

func newLoadSeconds(reg prometheus.Registerer) prometheus.Histogram {
	return promauto.With(reg).NewHistogram(prometheus.HistogramOpts{
		Name: "dibs_load_seconds", Help: "Time of a load of a campaign into Redis.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	})
}

type keeperMetrics struct {
	evictions                     prometheus.Counter
	lostClaims, lostUnits, parked prometheus.Gauge
	partitions                    *prometheus.GaugeVec
}

func newKeeperMetrics(reg prometheus.Registerer) keeperMetrics {
	f := promauto.With(reg)
	return keeperMetrics{
		evictions: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_evictions_total", Help: "Campaigns that were taken out of Redis because no one claimed from them.",
		}),
		lostClaims: f.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_lost_claims", Help: "Claims that Redis accepted and lost, and that were not given up. 0 unless this process leads.",
		}),
		lostUnits: f.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_lost_units", Help: "Units of claims that Redis accepted and lost: they are not for sale. 0 unless this process leads.",
		}),
		parked: f.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_parked_events", Help: "Events in parked_events that MySQL could not take and that were not " +
				"given up. 0 unless this process leads.",
		}),
		partitions: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dibs_partitions", Help: "Partitions by their state: ok, recovering (Redis lost data)," +
				" gap (MySQL is older than the start of the stream). 0 unless this process leads.",
		}, []string{"state"}),
	}
}
