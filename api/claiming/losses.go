package claiming

import (
	"context"
	"log/slog"
	"time"

	"dibs/lua"
)

const (
	// how often the signals are read; a load waits longer than that for reports
	signalsEvery  = 200 * time.Millisecond
	reportTimeout = 10 * time.Second // of all campaigns of all partitions
)

// Losses learns of partitions that lost data and of lots that were
// stopped, and takes reports of what was answered before.
type Losses interface {
	// Signals are those of the partitions that answer.
	Signals(ctx context.Context) map[int]lua.Signals
	// Report records the positions that lots had in Redis when this
	// process last claimed from them.
	Report(ctx context.Context, seen map[string]lua.Position) error
}

// ReportLosses reads the signals until ctx ends. When a partition has a
// new generation, or a lot of it was stopped, it reports the positions of
// all lots of that partition that this process has claimed from: no one
// else may know of the last claims, and perhaps no other claim comes. It
// returns false when the process stops.
func (s *Routes) ReportLosses(ctx context.Context, losses Losses) bool {
	return s.cfg.Workers.Go(func() {
		reporter := reporter{routes: s, losses: losses, known: make(map[int]lua.Signals)}
		ticker := time.NewTicker(signalsEvery)
		defer ticker.Stop()
		for {
			reporter.check(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

type reporter struct {
	routes *Routes
	losses Losses
	known  map[int]lua.Signals // by partition, as of the last report
}

func (r *reporter) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	for partition, now := range r.signals(ctx) {
		known, isKnown := r.known[partition]
		if isKnown && known == now {
			continue
		}
		if isKnown {
			if err := r.report(ctx, partition); err != nil {
				r.routes.logSome.Do(func() {
					r.routes.cfg.Logger.WarnContext(ctx, "what this process saw of campaigns could not be reported to mysql yet; it is tried again",
						slog.Int("partition", partition), slog.Any("error", err))
				})
				continue
			}
		}
		r.known[partition] = now
	}
}

// signals asks Redis until ctx ends. A command that a stalled Redis does
// not answer ends at its own timeout, whatever becomes of its context, and
// a stop does not wait for it.
func (r *reporter) signals(ctx context.Context) map[int]lua.Signals {
	answer := make(chan map[int]lua.Signals, 1)
	go func() { answer <- r.losses.Signals(ctx) }()
	select {
	case all := <-answer:
		return all
	case <-ctx.Done():
		return nil
	}
}

func (r *reporter) report(ctx context.Context, partition int) error {
	seen := r.routes.lanes.positions(partition)
	if len(seen) == 0 {
		return nil
	}
	return r.losses.Report(ctx, seen)
}

// positions are the latest positions of the campaigns of a partition that
// this process has claimed from.
func (ls *lanes) positions(partition int) map[string]lua.Position {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	all := make(map[string]lua.Position)
	for id, l := range ls.byID {
		if at := l.latest.position(); l.meta.Partition == partition && at != (lua.Position{}) {
			all[id] = at
		}
	}
	return all
}
