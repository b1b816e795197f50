package claimed

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"dibs/api/wire"
	"dibs/models"
)

// metrics of decisions about claims. Label values are closed lists.
type metrics struct {
	resolutions *prometheus.CounterVec
}

const (
	verbRedeem  = "redeem"
	verbRelease = "release"
	verbReopen  = "reopen"
	verbExtend  = "extend"
)

var resolutionOutcomes = []string{
	string(models.ResolvedNow), string(models.ResolvedBefore),
	string(wire.CodeAlreadyRedeemed), string(wire.CodeAlreadyReleased), string(wire.CodeNotRedeemed), string(wire.CodeClaimParked),
	string(wire.CodeClaimNotFound), string(wire.CodeInvalid), string(wire.CodeMalformed), string(wire.CodeTooLarge),
	string(wire.CodeUnavailable), string(wire.CodeInternal),
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		resolutions: f.NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_resolutions_total", Help: "Claims that were to be redeemed, released, reopened or extended, by what came of it.",
		}, []string{"verb", "outcome"}),
	}
	for _, verb := range []string{verbRedeem, verbRelease, verbReopen, verbExtend} {
		for _, outcome := range resolutionOutcomes {
			m.resolutions.WithLabelValues(verb, outcome)
		}
	}
	return m
}

func (m *metrics) resolved(verb, outcome string) {
	m.resolutions.WithLabelValues(verb, outcome).Inc()
}
