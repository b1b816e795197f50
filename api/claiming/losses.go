package claiming

import (
	"context"
	"log/slog"
	"time"

	"dibs/lua"
)

const (
	// interval of reading signals; a load waits longer than this for reports.
	signalsEvery  = 200 * time.Millisecond
	reportTimeout = 10 * time.Second // for all campaigns of all partitions
)

// Losses reads which partitions lost data and which lots were stopped.
// It accepts reports of what was answered before.
type Losses interface {
	// Signals returns those of the partitions that answer.
	Signals(ctx context.Context) map[int]lua.Signals
	// Report records each lot's position at this process' last claim from it.
	Report(ctx context.Context, seen map[string]lua.Position) error
}

// ReportLosses reads the signals until ctx ends. If a partition has a new
// generation, or one of its lots was stopped, it reports the positions of all
// lots of the partition that this process claimed from. No other process may
// know of the last claims, and there may be no further claim to show the
// loss. It returns false if the process is stopping.
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

// signals reads the signals, or gives up when ctx ends. A command to a
// stalled Redis ends only at its own timeout, not with its context.
// Stopping must not wait for that.
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

// positions are the latest positions of the partition's campaigns that
// this process claimed from.
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
