package redisbatch

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are the metrics of a subscription,
// shared in a process by group and partition.
type counters struct {
	read, acked, nacked, lost, reclaimed, redisErrors prometheus.Counter
	inFlight, oldest                                  prometheus.Gauge
}

// newCounters registers the metrics, and
// returns them with their label values.
func newCounters(cfg *Config, labels ...string) (counters, error) {
	var failed error
	counter := func(name, help string) prometheus.Counter {
		vec, err := Register(cfg.Registerer, prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: cfg.MetricsPrefix + "_" + name, Help: help}, []string{"group", "partition"}))
		failed = errors.Join(failed, err)
		if failed != nil || labels == nil {
			return nil
		}
		return vec.WithLabelValues(labels...)
	}
	gauge := func(name, help string) prometheus.Gauge {
		vec, err := Register(cfg.Registerer, prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Name: cfg.MetricsPrefix + "_" + name, Help: help}, []string{"group", "partition"}))
		failed = errors.Join(failed, err)
		if failed != nil || labels == nil {
			return nil
		}
		return vec.WithLabelValues(labels...)
	}
	return counters{
		read:        counter("read_total", "Entries taken from the stream, reclaimed ones included."),
		acked:       counter("acked_total", "Entries acked in Redis after their handler acked."),
		nacked:      counter("nacked_total", "Entries that a handler nacked; each is delivered again."),
		lost:        counter("lost_total", "Entries that were trimmed from the stream before they were handled."),
		reclaimed:   counter("reclaimed_total", "Entries taken over from a silent consumer."),
		redisErrors: counter("redis_errors_total", "Commands to Redis that failed; each is tried again."),
		inFlight:    gauge("in_flight", "Entries read and not yet acked in Redis."),
		oldest:      gauge("oldest_in_flight_seconds", "Age of the oldest entry in flight; 0 when there is none."),
	}, failed
}

// Register registers a collector, or returns the registered one.
func Register[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	err := reg.Register(c)
	if there, taken := errors.AsType[prometheus.AlreadyRegisteredError](err); taken {
		if existing, same := there.ExistingCollector.(C); same {
			return existing, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("redisbatch: registering metrics: %w", err)
	}
	return c, nil
}
