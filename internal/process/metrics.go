package process

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"dibs/internal/build"
	"dibs/internal/redisconn"
	"dibs/lua"
)

// newRegistry has the metrics of every process: of Go, the process, and the
// build.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := build.Of()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "dibs_build_info", Help: "What this program was built from. Always 1.",
			ConstLabels: prometheus.Labels{"version": info.Version, "commit": info.Commit, "date": info.Date, "go": runtime.Version()},
		}, func() float64 { return 1 }))
	return registry
}

func observeScripts(registry prometheus.Registerer) func(script string, took time.Duration, err error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "dibs_script_seconds", Help: "Time of a script call as the caller sees it, by script and result.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 3},
	}, []string{"script", "result"})
	registry.MustRegister(seconds)
	return func(script string, took time.Duration, err error) {
		seconds.WithLabelValues(script, scriptResult(err)).Observe(took.Seconds())
	}
}

func scriptResult(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, lua.ErrUnavailable):
		return "unavailable"
	default:
		return "unknown"
	}
}

// registerRole exports the role, so that a missing one can be noticed.
func registerRole(registry prometheus.Registerer, role string) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dibs_role_info", Help: "The role of this process. Always 1.", ConstLabels: prometheus.Labels{"role": role},
	}, func() float64 { return 1 }))
}

func registerLeader(registry prometheus.Registerer, leads func() bool) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dibs_leader", Help: "1 on the syncer that leads, 0 on the others. Its sum over all syncers is 1.",
	}, func() float64 { return asGauge(leads()) }))
}

func asGauge(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

type scraped struct {
	descs []*prometheus.Desc
	ask   func(to chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (s *scraped) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range s.descs {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (s *scraped) Collect(to chan<- prometheus.Metric) { s.ask(to) }

// registerPools exports the connections to both servers, and Redis' memory.
func (s *Stack) registerPools(context.Context) error {
	pool, err := s.DB.DB()
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	redis := &scraped{}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		made := prometheus.NewDesc("dibs_redis_"+name, help, labels, nil)
		redis.descs = append(redis.descs, made)
		return made
	}
	connections := desc("pool_connections", "Connections of this process to Redis, all and idle ones.", "state")
	timeouts := desc("pool_timeouts_total", "Commands that got no connection in time.")
	waits := desc("pool_waits_total", "Commands that waited for a connection.")
	memory := desc("memory_bytes", "Memory that Redis uses; of a cluster, of one server. None when it does not say.")
	limit := desc("memory_limit_bytes", "Memory that Redis may use; 0 is no limit.")
	redis.ask = func(to chan<- prometheus.Metric) {
		stats := s.Redis.PoolStats()
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(stats.TotalConns), "total")
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(stats.IdleConns), "idle")
		to <- prometheus.MustNewConstMetric(timeouts, prometheus.CounterValue, float64(stats.Timeouts))
		to <- prometheus.MustNewConstMetric(waits, prometheus.CounterValue, float64(stats.WaitCount))
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		if h, err := redisconn.HealthOf(ctx, s.Redis); err == nil && h.UsedBytes > 0 {
			to <- prometheus.MustNewConstMetric(memory, prometheus.GaugeValue, float64(h.UsedBytes))
			to <- prometheus.MustNewConstMetric(limit, prometheus.GaugeValue, float64(h.LimitBytes))
		}
	}
	s.Registry.MustRegister(collectors.NewDBStatsCollector(pool, "dibs"), redis)
	return nil
}
