package api

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dibs/models"
)

// metrics are this room's; names begin with dibs_. Label values are closed lists.
type metrics struct {
	claims   map[string]prometheus.Counter // by outcome
	duration *prometheus.HistogramVec
	combiner combinerMetrics

	rolledBack prometheus.Counter

	resolutions *prometheus.CounterVec
	unsynced    prometheus.Gauge // held by look-ups
}

// combinerMetrics are shared by all combiners.
type combinerMetrics struct {
	size  prometheus.Histogram
	depth prometheus.Gauge
}

func (m combinerMetrics) sent(claims int) { m.size.Observe(float64(claims)) }

func (m combinerMetrics) queued(claims int) { m.depth.Add(float64(claims)) }

// The verbs of resolutions.
const (
	verbRedeem  = "redeem"
	verbRelease = "release"
)

// resolutionOutcomes are what may come of one.
var resolutionOutcomes = []string{
	string(models.ResolvedNow), string(models.ResolvedBefore), string(CodeAlreadyRedeemed), string(CodeAlreadyReleased),
	string(CodeClaimNotFound), string(CodeInvalid), string(CodeMalformed), string(CodeTooLarge), string(CodeUnavailable), string(CodeInternal),
}

// resolved counts a resolution.
func (m *metrics) resolved(verb, outcome string) { m.resolutions.WithLabelValues(verb, outcome).Inc() }

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	claims := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dibs_claims_total", Help: "Claims asked for, by what became of them.",
	}, []string{"outcome"})
	m := &metrics{
		claims: make(map[string]prometheus.Counter, len(claimCodes)+2),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dibs_http_request_seconds", Help: "Time to answer a request, by route and class of status.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "class"}),
		combiner: combinerMetrics{
			size: prometheus.NewHistogram(prometheus.HistogramOpts{
				Name: "dibs_claims_per_call", Help: "Claims that shared one script call.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
			}),
			depth: prometheus.NewGauge(prometheus.GaugeOpts{
				Name: "dibs_claims_queued", Help: "Claims waiting for a script call, of all campaigns.",
			}),
		},
	}
	m.rolledBack = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dibs_rolled_back_total",
		Help: "Calls that took nothing because Redis went back behind what this process had seen of the campaign.",
	})
	m.unsynced = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dibs_lookup_unsynced_claims", Help: "Unsynced claims that look-ups keep in memory; 0 when nobody has looked for a while.",
	})
	m.resolutions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dibs_resolutions_total", Help: "Claims that were to be redeemed or released, by what came of it.",
	}, []string{"verb", "outcome"})
	for _, verb := range []string{verbRedeem, verbRelease} {
		for _, outcome := range resolutionOutcomes {
			m.resolutions.WithLabelValues(verb, outcome)
		}
	}
	for _, c := range []prometheus.Collector{claims, m.resolutions, m.duration, m.combiner.size, m.combiner.depth, m.rolledBack, m.unsynced} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("api: metrics: %w", err)
		}
	}
	outcomes := []string{string(models.OutcomeClaimed), string(models.OutcomeReplayed)}
	for _, code := range claimCodes {
		outcomes = append(outcomes, string(code))
	}
	for _, outcome := range outcomes {
		m.claims[outcome] = claims.WithLabelValues(outcome)
	}
	return m, nil
}

// became counts a claim.
func (m *metrics) became(outcome string) { m.claims[outcome].Inc() }

// routeTimer observes the requests of one route by class of status, 1xx to 5xx. A class that never was is no series.
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
