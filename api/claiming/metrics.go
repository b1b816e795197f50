package claiming

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"dibs/api/coalesce"
	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// metrics of the claim routes. Label values are closed lists.
type metrics struct {
	claims     map[string]prometheus.Counter // by outcome
	coalescers coalesce.Metrics
	rolledBack prometheus.Counter
	held       prometheus.Histogram
	rowWait    prometheus.Histogram
	byShard    *prometheus.CounterVec // by shard and outcome
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	claims := f.NewCounterVec(prometheus.CounterOpts{
		Name: "dibs_claims_total", Help: "Claims asked for, by what became of them.",
	}, []string{"outcome"})
	m := &metrics{
		claims: make(map[string]prometheus.Counter, len(wire.ClaimCodes)+2),
		coalescers: coalesce.Metrics{
			PerCall: f.NewHistogram(prometheus.HistogramOpts{
				Name: "dibs_claims_per_call", Help: "Claims that shared one script call.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
			}),
			Queued: f.NewGauge(prometheus.GaugeOpts{
				Name: "dibs_claims_queued", Help: "Claims waiting for a script call, of all campaigns.",
			}),
		},
		rolledBack: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_rolled_back_total",
			Help: "Calls that took nothing because Redis was rolled back behind what this process had seen of the campaign.",
		}),
		held: f.NewHistogram(prometheus.HistogramOpts{
			Name: "dibs_claims_held_seconds", Help: "How long claims were held because their shard of the campaign was out of units.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .2, .5},
		}),
		rowWait: f.NewHistogram(prometheus.HistogramOpts{
			Name: "dibs_claims_row_wait_seconds", Help: "How long answers to claims waited for the row in MySQL, in mode mysql.",
			Buckets: []float64{.0025, .005, .01, .02, .05, .1, .25, .5, 1, 2},
		}),
		byShard: f.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_shard_claims_total",
			Help: "Claims that shards of campaigns took (claimed), and those that found one out of units (dry), by the number of the shard.",
		}, []string{"shard", "outcome"}),
	}
	outcomes := []string{string(models.OutcomeClaimed), string(models.OutcomeReplayed)}
	for _, code := range wire.ClaimCodes {
		outcomes = append(outcomes, string(code))
	}
	for _, outcome := range outcomes {
		m.claims[outcome] = claims.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) count(outcome string) { m.claims[outcome].Inc() }

func (m *metrics) ofShard(id string, replies []lua.ClaimReply) {
	claimed := 0
	dry := 0
	for i := range replies {
		switch replies[i].Outcome { //nolint:exhaustive // the others say nothing of the shard
		case models.OutcomeClaimed:
			claimed++
		case models.OutcomeDry:
			dry++
		}
	}
	_, number := models.SplitShardID(id)
	for outcome, n := range map[models.Outcome]int{models.OutcomeClaimed: claimed, models.OutcomeDry: dry} {
		if n > 0 {
			m.byShard.WithLabelValues(strconv.Itoa(number), string(outcome)).Add(float64(n))
		}
	}
}
