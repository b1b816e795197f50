package webhooks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	d          *Dispatcher
	deliveries *prometheus.CounterVec
	parked     *prometheus.CounterVec
	delay      *prometheus.HistogramVec

	waiting, oldest *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer, d *Dispatcher) *metrics {
	f := promauto.With(reg)
	endpoint := []string{"endpoint"}
	m := &metrics{
		d: d,
		deliveries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_webhook_deliveries_total", Help: "Deliveries by result: ok, or failed and to be tried again.",
		}, []string{"endpoint", "result"}),
		parked: f.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_webhook_parked_total", Help: "Events that were given up because the endpoint did not take them for too long.",
		}, endpoint),
		delay: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dibs_webhook_delay_seconds", Help: "From the event to the endpoint's answer that it has it.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 600, 3600, 86400},
		}, endpoint),
		waiting: prometheus.NewDesc("dibs_webhook_waiting_events", "Events that an endpoint has not taken.", endpoint, nil),
		oldest: prometheus.NewDesc("dibs_webhook_oldest_seconds",
			"Age of the oldest event that an endpoint has not taken; 0 when there is none.", endpoint, nil),
	}
	if reg != nil {
		reg.MustRegister(m)
	}
	return m
}

func (m *metrics) sent(endpoint string, at time.Time, err error) {
	if err != nil {
		m.deliveries.WithLabelValues(endpoint, "failed").Inc()
		return
	}
	m.deliveries.WithLabelValues(endpoint, "ok").Inc()
	m.delay.WithLabelValues(endpoint).Observe(time.Since(at).Seconds())
}

// Describe is for prometheus.
func (m *metrics) Describe(to chan<- *prometheus.Desc) { to <- m.waiting; to <- m.oldest }

// Collect is for prometheus.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	endpoints := m.d.cfg.Endpoints()
	m.d.mu.Lock()
	waiting := make(map[string]int64)
	oldest := make(map[string]time.Duration)
	for key, l := range m.d.lanes {
		waiting[key.endpoint] += l.waiting
		if !l.oldest.IsZero() {
			oldest[key.endpoint] = max(oldest[key.endpoint], time.Since(l.oldest))
		}
	}
	m.d.mu.Unlock()
	for name := range endpoints {
		to <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(waiting[name]), name)
		to <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, oldest[name].Seconds(), name)
	}
}
