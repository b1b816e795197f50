// Package metrics makes the metrics that every process exports,
// whatever its role.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"dibs/internal/build"
	"dibs/internal/redisconn"
	"dibs/lua"
)

// New makes a registry with metrics of Go, the process, and the build.
func New() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := build.Of()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "dibs_build_info", Help: "What this program was built from. Always 1.",
			ConstLabels: prometheus.Labels{"version": info.Version, "commit": info.Commit, "date": info.Date, "go": runtime.Version()},
		}, func() float64 { return 1 }))
	return registry
}

// ObserveScripts registers the time of script calls. The result records one
// call.
func ObserveScripts(registry prometheus.Registerer) func(script string, took time.Duration, err error) {
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

// RegisterRole exports the role, so that a missing one can be noticed.
func RegisterRole(registry prometheus.Registerer, role string) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dibs_role_info", Help: "The role of this process. Always 1.", ConstLabels: prometheus.Labels{"role": role},
	}, func() float64 { return 1 }))
}

// RegisterLeader exports whether this process leads.
func RegisterLeader(registry prometheus.Registerer, leads func() bool) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dibs_leader", Help: "1 on the syncer that leads, 0 on the others. Its sum over all syncers is 1.",
	}, func() float64 { return AsGauge(leads()) }))
}

// AsGauge returns 1 or 0.
func AsGauge(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Scraped is a collector that makes its metrics whenever they are scraped.
type Scraped struct {
	Descs []*prometheus.Desc
	Ask   func(to chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (s *Scraped) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range s.Descs {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (s *Scraped) Collect(to chan<- prometheus.Metric) { s.Ask(to) }

// RegisterPools exports the connections to both servers, and Redis' memory.
func RegisterPools(registry prometheus.Registerer, db *gorm.DB, rdb redis.UniversalClient) error {
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	all := &Scraped{}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		made := prometheus.NewDesc("dibs_redis_"+name, help, labels, nil)
		all.Descs = append(all.Descs, made)
		return made
	}
	connections := desc("pool_connections", "Connections of this process to Redis, all and idle ones.", "state")
	timeouts := desc("pool_timeouts_total", "Commands that got no connection in time.")
	waits := desc("pool_waits_total", "Commands that waited for a connection.")
	memory := desc("memory_bytes", "Memory that Redis uses; of a cluster, of one server. None when it does not say.")
	limit := desc("memory_limit_bytes", "Memory that Redis may use; 0 is no limit.")
	all.Ask = func(to chan<- prometheus.Metric) {
		stats := rdb.PoolStats()
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(stats.TotalConns), "total")
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(stats.IdleConns), "idle")
		to <- prometheus.MustNewConstMetric(timeouts, prometheus.CounterValue, float64(stats.Timeouts))
		to <- prometheus.MustNewConstMetric(waits, prometheus.CounterValue, float64(stats.WaitCount))
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		if h, err := redisconn.HealthOf(ctx, rdb); err == nil && h.UsedBytes > 0 {
			to <- prometheus.MustNewConstMetric(memory, prometheus.GaugeValue, float64(h.UsedBytes))
			to <- prometheus.MustNewConstMetric(limit, prometheus.GaugeValue, float64(h.LimitBytes))
		}
	}
	registry.MustRegister(collectors.NewDBStatsCollector(pool, "dibs"), all)
	return nil
}
