package api

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dibs/api/claiming"
	"dibs/api/live"
)

// scrapeTimeout bounds what a scrape asks Redis.
const scrapeTimeout = 500 * time.Millisecond

// campaignMetrics are series of the campaigns that this process is asked for most, and of no others, so that labels stay bounded.
type campaignMetrics struct {
	busiest func(most int) []claiming.Tally
	redis   live.Redis
	most    int

	claims, total, remaining, low *prometheus.Desc
}

func newCampaignMetrics(busiest func(int) []claiming.Tally, redis live.Redis, most int) *campaignMetrics {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("dibs_campaign_"+name, help, append([]string{"campaign_id"}, more...), nil)
	}
	return &campaignMetrics{
		busiest: busiest, redis: redis, most: most,
		claims: desc("claims_total",
			"Claims asked for at this process, by what became of them, replays apart; of the busiest campaigns.", "outcome"),
		total:     desc("total_units", "Units to give away; of the busiest campaigns of this process."),
		remaining: desc("remaining_units", "Units that can be claimed; of the busiest campaigns of this process."),
		low:       desc("low", "1 when no more units are left than low_stock_at, else 0; of the busiest campaigns of this process."),
	}
}

// Describe tells the names.
func (m *campaignMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.claims, m.total, m.remaining, m.low} {
		to <- d
	}
}

// Collect reads the counts, and the stock from Redis in one round trip. A Redis that is away has no stock to tell of.
func (m *campaignMetrics) Collect(to chan<- prometheus.Metric) {
	all := m.busiest(m.most)
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].CampaignID
		for outcome, n := range all[i].ByOutcome {
			to <- prometheus.MustNewConstMetric(m.claims, prometheus.CounterValue, float64(n), ids[i], outcome)
		}
	}
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	seen, err := m.redis.Watch(ctx, ids)
	if err != nil {
		return
	}
	for i := range seen {
		st := &seen[i].State
		if seen[i].Err != nil {
			continue
		}
		low := 0.0
		if st.LowStockAt > 0 && st.Remaining() <= st.LowStockAt {
			low = 1
		}
		to <- prometheus.MustNewConstMetric(m.total, prometheus.GaugeValue, float64(st.Total), ids[i])
		to <- prometheus.MustNewConstMetric(m.remaining, prometheus.GaugeValue, float64(st.Remaining()), ids[i])
		to <- prometheus.MustNewConstMetric(m.low, prometheus.GaugeValue, low, ids[i])
	}
}
