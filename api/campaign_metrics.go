package api

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dibs/api/claiming"
	"dibs/api/live"
)

const scrapeTimeout = 500 * time.Millisecond

type campaignMetrics struct {
	busiest func(most int) []claiming.Tally
	redis   live.Redis
	books   live.Books
	most    int

	claims, total, remaining, low *prometheus.Desc
}

func newCampaignMetrics(busiest func(int) []claiming.Tally, redis live.Redis, books live.Books, most int) *campaignMetrics {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("dibs_campaign_"+name, help, append([]string{"campaign_id"}, more...), nil)
	}
	return &campaignMetrics{
		busiest: busiest, redis: redis, books: books, most: most,
		claims: desc("claims_total",
			"Claims asked for at this process, by what became of them, replays apart; of the busiest campaigns.", "outcome"),
		total:     desc("total_units", "Units to give away; of the busiest campaigns of this process."),
		remaining: desc("remaining_units", "Units that can be claimed; of the busiest campaigns of this process."),
		low:       desc("low", "1 when no more units are left than low_stock_at, else 0; of the busiest campaigns of this process."),
	}
}

// Describe sends the descriptors.
func (m *campaignMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.claims, m.total, m.remaining, m.low} {
		to <- d
	}
}

// Collect reads the counts, and the stock from Redis in one round trip. The
// stock of sharded campaigns comes from both servers. Series of an
// unreachable server are left out.
func (m *campaignMetrics) Collect(to chan<- prometheus.Metric) {
	all := m.busiest(m.most)
	var whole, spread []string
	for i := range all {
		id := all[i].CampaignID
		if all[i].Shards > 1 {
			spread = append(spread, id)
		} else {
			whole = append(whole, id)
		}
		for outcome, n := range all[i].ByOutcome {
			to <- prometheus.MustNewConstMetric(m.claims, prometheus.CounterValue, float64(n), id, outcome)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	if len(whole) > 0 {
		m.collectWhole(ctx, to, whole)
	}
	if len(spread) > 0 {
		m.collectSpread(ctx, to, spread)
	}
}

func (m *campaignMetrics) collectWhole(ctx context.Context, to chan<- prometheus.Metric, ids []string) {
	seen, err := m.redis.Watch(ctx, ids)
	if err != nil {
		return
	}
	for i := range seen {
		if st := &seen[i].State; seen[i].Err == nil {
			m.send(to, ids[i], st.Total, st.Remaining(), st.LowStockAt > 0 && st.Remaining() <= st.LowStockAt)
		}
	}
}

func (m *campaignMetrics) collectSpread(ctx context.Context, to chan<- prometheus.Metric, ids []string) {
	events, err := live.Snapshot(ctx, m.redis, m.books, ids)
	if err != nil {
		return
	}
	for i := range events {
		m.send(to, events[i].CampaignID, events[i].Total, events[i].Remaining, events[i].Low)
	}
}

func (m *campaignMetrics) send(to chan<- prometheus.Metric, id string, total, remaining int64, isLow bool) {
	low := 0.0
	if isLow {
		low = 1
	}
	to <- prometheus.MustNewConstMetric(m.total, prometheus.GaugeValue, float64(total), id)
	to <- prometheus.MustNewConstMetric(m.remaining, prometheus.GaugeValue, float64(remaining), id)
	to <- prometheus.MustNewConstMetric(m.low, prometheus.GaugeValue, low, id)
}
