package retention

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"dibs/lua"
)

type trimmerMetrics struct {
	length  *prometheus.GaugeVec
	backlog *prometheus.GaugeVec
	oldest  *prometheus.GaugeVec
	trimmed prometheus.Counter
}

func newTrimmerMetrics(reg prometheus.Registerer) *trimmerMetrics {
	f := promauto.With(reg)
	return &trimmerMetrics{
		length: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dibs_stream_entries", Help: "Entries in a claim stream.",
		}, []string{"partition"}),
		backlog: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dibs_stream_group_backlog_entries",
			Help: "Entries that a consumer group has not acknowledged, or that group syncer has not read.",
		}, []string{"partition", "group"}),
		oldest: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dibs_stream_group_oldest_seconds",
			Help: "Age of the oldest entry that a consumer group has not acknowledged; 0 when there is none.",
		}, []string{"partition", "group"}),
		trimmed: f.NewCounter(prometheus.CounterOpts{
			Name: "dibs_stream_trimmed_total", Help: "Entries trimmed from the claim streams.",
		}),
	}
}

// forget deletes the series of a stream, which may be stale.
func (m *trimmerMetrics) forget(partition int) {
	of := prometheus.Labels{"partition": strconv.Itoa(partition)}
	for _, gauge := range []*prometheus.GaugeVec{m.length, m.backlog, m.oldest} {
		gauge.DeletePartialMatch(of)
	}
}

func (t *Trimmer) measure(ctx context.Context, partition int, groups []lua.Group) error {
	label := strconv.Itoa(partition)
	stream, err := t.Streams.Stream(ctx, partition)
	if err != nil {
		return err
	}
	t.metrics.length.WithLabelValues(label).Set(float64(stream.Length))
	now, err := t.Streams.Now(ctx) // as ids are by Redis' clock
	if err != nil {
		return err
	}
	t.forgetDestroyed(partition, groups)
	for i := range groups {
		g := &groups[i]
		oldest, err := t.Streams.Entries(ctx, partition, g.First(), 1)
		if err != nil {
			return err
		}
		var backlog int64
		var age time.Duration
		if len(oldest) > 0 {
			backlog = backlogOf(g, stream.Length)
			age = oldest[0].ID.Age(now)
		}
		t.metrics.backlog.WithLabelValues(label, g.Name).Set(float64(backlog))
		t.metrics.oldest.WithLabelValues(label, g.Name).Set(age.Seconds())
		t.warn(ctx, lua.StreamKey(partition), g.Name, backlog, age)
	}
	return nil
}

func (t *Trimmer) forgetDestroyed(partition int, groups []lua.Group) {
	names := make([]string, len(groups))
	for i := range groups {
		names[i] = groups[i].Name
	}
	for _, name := range t.known[partition] {
		if !slices.Contains(names, name) {
			t.metrics.backlog.DeleteLabelValues(strconv.Itoa(partition), name)
			t.metrics.oldest.DeleteLabelValues(strconv.Itoa(partition), name)
			delete(t.behind, lua.StreamKey(partition)+" "+name)
		}
	}
	t.known[partition] = names
}

// backlogOf returns a group's unacknowledged
// entries: all, if Redis does not know.
func backlogOf(g *lua.Group, length int64) int64 {
	if g.Backlog < 0 {
		return length
	}
	return min(length, g.Backlog)
}

// warn logs once when a group falls far behind, and once when it has caught
// up.
func (t *Trimmer) warn(ctx context.Context, stream, group string, backlog int64, age time.Duration) {
	key := stream + " " + group
	far := backlog > t.farBehind
	if far == t.behind[key] {
		return
	}
	t.behind[key] = far
	log := t.Logger.With(slog.String("stream", stream), slog.String("group", group),
		slog.Int64("backlog", backlog), slog.Duration("oldest", age))
	if far {
		log.WarnContext(ctx, "consumer group is far behind: its stream cannot be trimmed and grows."+
			" If nothing reads for it any more, run dibs groups remove")
	} else {
		log.InfoContext(ctx, "consumer group has caught up")
	}
}
