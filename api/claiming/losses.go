package claiming

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dibs/lua"
	"dibs/models"
)

const (
	lossesEvery   = 500 * time.Millisecond // how often the streams are checked; a repair waits longer than that for reports
	reportTimeout = 10 * time.Second       // of all campaigns of a partition
	reportsMax    = 8                      // at once
)

// Losses learns of claim streams that lost entries, and takes reports of what was answered before.
type Losses interface {
	// Generations returns the generations of the claim streams that answer, by partition. A stream that lost entries gets another one.
	Generations(ctx context.Context) map[int]string
	// Report records the position that a campaign or shard had in Redis when this process last claimed from it.
	Report(ctx context.Context, campaignID string, seen lua.Position) error
}

// ReportLosses checks the claim streams until ctx ends. When one has a new generation, it reports the positions of all campaigns of that
// partition that this process has claimed from: no one else may know of the last claims, and perhaps no other claim comes. It returns
// false when the process stops.
func (s *Routes) ReportLosses(ctx context.Context, losses Losses) bool {
	return s.cfg.Workers.Go(func() {
		reporter := reporter{routes: s, losses: losses, known: make(map[int]string)}
		ticker := time.NewTicker(lossesEvery)
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

// reporter is the state of ReportLosses.
type reporter struct {
	routes *Routes
	losses Losses
	known  map[int]string // generation by partition, as of the last report
}

func (r *reporter) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	for partition, generation := range r.generations(ctx) {
		known, seen := r.known[partition]
		if seen && known == generation {
			continue
		}
		if seen {
			if err := r.report(ctx, partition); err != nil {
				r.routes.logSome.Do(func() {
					r.routes.cfg.Logger.WarnContext(ctx, "redis lost claims, and what this process answered could not be reported to mysql yet;"+
						" it is tried again", slog.Int("partition", partition), slog.Any("error", err))
				})
				continue
			}
		}
		r.known[partition] = generation
	}
}

// generations asks Redis until ctx ends. A command that a stalled Redis does not answer ends at its own timeout, whatever becomes of its
// context, and a stop does not wait for it.
func (r *reporter) generations(ctx context.Context) map[int]string {
	answer := make(chan map[int]string, 1)
	go func() { answer <- r.losses.Generations(ctx) }()
	select {
	case all := <-answer:
		return all
	case <-ctx.Done():
		return nil
	}
}

// report reports all campaigns of a partition. A campaign that MySQL does not know is no failure.
func (r *reporter) report(ctx context.Context, partition int) error {
	var reports errgroup.Group
	reports.SetLimit(reportsMax)
	var mu sync.Mutex
	var failed []error
	for id, seen := range r.routes.lanes.positions(partition) {
		reports.Go(func() error {
			if err := r.losses.Report(ctx, id, seen); err != nil && !errors.Is(err, models.ErrNotFound) {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
			return nil
		})
	}
	_ = reports.Wait()
	return errors.Join(failed[:min(len(failed), 1)]...)
}

// positions are the latest positions of the campaigns of a partition that this process has claimed from.
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
