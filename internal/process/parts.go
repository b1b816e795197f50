package process

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"

	"dibs/internal/process/metrics"
	"dibs/lua"
)

const (
	// how long an answer is cached, so that not every /readyz queries the
	// servers.
	partsFor     = 500 * time.Millisecond
	partsTimeout = 1800 * time.Millisecond
	pingTimeout  = time.Second
)

// parts are the servers that a process needs, and their state.
type parts struct {
	check func(ctx context.Context) map[string]error // by name; nil means reachable

	mu   sync.Mutex // held during a check
	at   time.Time  // start of the last check
	done time.Time
	is   map[string]error
}

func newParts(reg prometheus.Registerer, check func(ctx context.Context) map[string]error) *parts {
	p := &parts{check: check}
	up := prometheus.NewDesc("dibs_part_up",
		"Whether a server that this process works with does what the process needs of it: 1 or 0. A partition is a part of Redis.",
		[]string{"part"}, nil)
	reg.MustRegister(&metrics.Scraped{Descs: []*prometheus.Desc{up}, Ask: func(to chan<- prometheus.Metric) {
		for name, err := range p.now(context.Background()) {
			to <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, metrics.AsGauge(err == nil), name)
		}
	}})
	return p
}

// now returns the error of each part, nil if reachable. A call during a
// check gets its result.
func (p *parts) now(ctx context.Context) map[string]error {
	asked := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done.After(asked) && time.Since(p.at) >= partsFor {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partsTimeout)
		defer cancel()
		p.at = time.Now() // before the check: one that waited for a server may have old results of others
		p.is = p.check(ctx)
		p.done = time.Now()
	}
	return p.is
}

func (p *parts) away(ctx context.Context) []string {
	var names []string
	for name, err := range p.now(ctx) {
		if err != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// partMySQL is MySQL's name as a part. partRedis is that of a Redis all of
// whose partitions are needed.
const partMySQL, partRedis = "mysql", "redis"

func partOf(partition int) string { return "redis partition " + strconv.Itoa(partition) }

func (s *Stack) partsOfAPI(ctx context.Context) map[string]error {
	return s.besideMySQL(ctx, func(is map[string]error) {
		away := s.Scripts.Away(ctx)
		for partition := range s.Config.Partitions {
			is[partOf(partition)] = away[partition]
		}
	})
}

func (s *Stack) partsOfRole(ctx context.Context) map[string]error {
	return s.besideMySQL(ctx, func(is map[string]error) {
		bounded, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		is[partRedis] = s.Redis.Ping(bounded).Err()
	})
}

func (s *Stack) besideMySQL(ctx context.Context, others func(is map[string]error)) map[string]error {
	mysql := make(chan error, 1)
	go func() { mysql <- ping(ctx, s.DB) }()
	is := make(map[string]error)
	others(is)
	is[partMySQL] = <-mysql
	return is
}

func ping(ctx context.Context, db *gorm.DB) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return pool.PingContext(ctx)
}

// readyAPI returns why no claim can be answered, or nil if those of some
// partition can. MySQL may be unreachable, except in mode mysql.
func (s *Stack) readyAPI(ctx context.Context) error {
	is := s.parts.now(ctx)
	if err := is[partMySQL]; err != nil && s.Config.Durability == lua.MySQL {
		return fmt.Errorf("no claim can be answered: mysql: %w", err)
	}
	var failed []error
	for partition := range s.Config.Partitions {
		err := is[partOf(partition)]
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return fmt.Errorf("no partition takes claims: %w", failed[0])
}

// readyRole returns why a role without an API can't work. One that waits
// for an unreachable server is ready.
func (s *Stack) readyRole(ctx context.Context) error {
	if err := s.pulse.Stuck(0); err != nil && len(s.parts.away(ctx)) == 0 {
		return err
	}
	return nil
}
