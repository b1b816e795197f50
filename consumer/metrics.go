package consumer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the figures of any number of subscribers, by group and stream.
type metrics struct {
	read, acked, nacked, poisoned, lost, reclaimed, redisErrors *prometheus.CounterVec
	inFlight, oldest, parked                                    *prometheus.GaugeVec
}

// newMetrics registers the figures, or finds those that are registered: one process may read for several groups.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := makeMetrics()
	for _, c := range []**prometheus.CounterVec{&m.read, &m.acked, &m.nacked, &m.poisoned, &m.lost, &m.reclaimed, &m.redisErrors} {
		if err := registered(reg, c); err != nil {
			return nil, err
		}
	}
	for _, g := range []**prometheus.GaugeVec{&m.inFlight, &m.oldest, &m.parked} {
		if err := registered(reg, g); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// registered registers a collector, or puts the one that is registered in its place.
func registered[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	if there, taken := errors.AsType[prometheus.AlreadyRegisteredError](err); taken {
		if existing, same := there.ExistingCollector.(C); same {
			*c = existing
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("consumer: registering metrics: %w", err)
	}
	return nil
}

func makeMetrics() *metrics {
	labels := []string{"group", "partition"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dibs_consumer_" + name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dibs_consumer_" + name, Help: help}, labels)
	}
	return &metrics{
		read:        counter("read_total", "Entries taken from the stream, reclaimed ones included."),
		acked:       counter("acked_total", "Entries acked in Redis after their handler acked."),
		nacked:      counter("nacked_total", "Deliveries that a handler refused; each is delivered again."),
		poisoned:    counter("poisoned_total", "Entries moved to the poison stream."),
		lost:        counter("lost_total", "Entries that were gone from the stream before they were handled."),
		reclaimed:   counter("reclaimed_total", "Entries taken over from a consumer that had gone silent."),
		redisErrors: counter("redis_errors_total", "Commands to Redis that failed; each is tried again."),
		inFlight:    gauge("in_flight", "Entries read and not yet acked in Redis."),
		parked:      gauge("parked", "Entries in the parked stream of a service's group, as last counted."),
		oldest:      gauge("oldest_in_flight_seconds", "Age of the oldest entry in flight; 0 when there is none."),
	}
}

// counters are the figures of one subscription, looked up once.
type counters struct {
	read, acked, nacked, poisoned, lost, reclaimed, redisErrors prometheus.Counter
	inFlight, oldest                                            prometheus.Gauge
}

// partitionOf is the partition of a claim stream, and the whole name of any other stream.
func partitionOf(stream string) string {
	if name, is := strings.CutPrefix(stream, "dibs:{p"); is {
		if number, is := strings.CutSuffix(name, "}:claims"); is {
			return number
		}
	}
	return stream
}

func (m *metrics) of(group, stream string) counters {
	partition := partitionOf(stream)
	return counters{
		read:        m.read.WithLabelValues(group, partition),
		acked:       m.acked.WithLabelValues(group, partition),
		nacked:      m.nacked.WithLabelValues(group, partition),
		poisoned:    m.poisoned.WithLabelValues(group, partition),
		lost:        m.lost.WithLabelValues(group, partition),
		reclaimed:   m.reclaimed.WithLabelValues(group, partition),
		redisErrors: m.redisErrors.WithLabelValues(group, partition),
		inFlight:    m.inFlight.WithLabelValues(group, partition),
		oldest:      m.oldest.WithLabelValues(group, partition),
	}
}
