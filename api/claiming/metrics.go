package claiming

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"dibs/models"
)

// claimMetrics are those of the claim routes. Label values are closed lists.
type claimMetrics struct {
	claims   map[string]prometheus.Counter // by outcome
	combiner combinerMetrics

	rolledBack prometheus.Counter
}

// combinerMetrics are shared by all combiners.
type combinerMetrics struct {
	size  prometheus.Histogram
	depth prometheus.Gauge
}

func (m combinerMetrics) sent(claims int) { m.size.Observe(float64(claims)) }

func (m combinerMetrics) queued(claims int) { m.depth.Add(float64(claims)) }

func newClaimMetrics(reg prometheus.Registerer) (*claimMetrics, error) {
	claims := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dibs_claims_total", Help: "Claims asked for, by what became of them.",
	}, []string{"outcome"})
	m := &claimMetrics{
		claims: make(map[string]prometheus.Counter, len(Codes)+2),
		combiner: combinerMetrics{
			size: prometheus.NewHistogram(prometheus.HistogramOpts{
				Name: "dibs_claims_per_call", Help: "Claims that shared one script call.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
			}),
			depth: prometheus.NewGauge(prometheus.GaugeOpts{
				Name: "dibs_claims_queued", Help: "Claims waiting for a script call, of all campaigns.",
			}),
		},
		rolledBack: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dibs_rolled_back_total",
			Help: "Calls that took nothing because Redis went back behind what this process had seen of the campaign.",
		}),
	}
	for _, c := range []prometheus.Collector{claims, m.combiner.size, m.combiner.depth, m.rolledBack} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("api: metrics of claims: %w", err)
		}
	}
	outcomes := []string{string(models.OutcomeClaimed), string(models.OutcomeReplayed)}
	for _, code := range Codes {
		outcomes = append(outcomes, string(code))
	}
	for _, outcome := range outcomes {
		m.claims[outcome] = claims.WithLabelValues(outcome)
	}
	return m, nil
}

// became counts a claim.
func (m *claimMetrics) became(outcome string) { m.claims[outcome].Inc() }
