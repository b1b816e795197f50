package api

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	duration *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		duration: promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
			Name: "dibs_http_request_seconds", Help: "Time to answer a request, by route and class of status.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "class"}),
	}
}

// routeTimer observes one route's requests by class of status, 1xx to 5xx.
// A class gets a series on its first request.
type routeTimer struct {
	metrics *metrics
	route   string
	classes [5]atomic.Pointer[prometheus.Observer]
}

func (m *metrics) timer(route string) *routeTimer { return &routeTimer{metrics: m, route: route} }

func (t *routeTimer) observe(status int, took time.Duration) {
	class := min(max(status/100, 1), 5)
	slot := &t.classes[class-1]
	o := slot.Load()
	if o == nil {
		fresh := t.metrics.duration.WithLabelValues(t.route, strconv.Itoa(class)+"xx")
		o = &fresh
		slot.Store(o)
	}
	(*o).Observe(took.Seconds())
}
