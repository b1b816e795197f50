package cmd

import (
	"context"
	"fmt"
	"time"

	"dibs/api"
	"dibs/api/console"
	"dibs/syncer/reconcile"
	"dibs/syncer/records"
)

// consoleDeps are what the console needs besides the API; nil when it is off.
func (s *stack) consoleDeps() *api.ConsoleDeps {
	if !s.cfg.Console {
		return nil
	}
	return &api.ConsoleDeps{
		Parts: console.LookAt(s.scripts, s.mysqlHealth), Records: records.New(s.db),
		Ended: s.scripts,
		Books: booksOf{reconcile.New(s.db, s.scripts, s.hydrator, s.log, nil)},
	}
}

// mysqlHealth asks MySQL how it is.
func (s *stack) mysqlHealth(ctx context.Context) console.Server {
	pool, err := s.db.DB()
	if err != nil {
		return console.Server{Away: "is not open"}
	}
	start := time.Now()
	if err := pool.PingContext(ctx); err != nil {
		return console.Server{Away: "does not answer"}
	}
	stats := pool.Stats()
	return console.Server{Took: time.Since(start), InUse: stats.InUse, Conns: stats.MaxOpenConnections}
}

// booksOf compares and repairs for the console.
type booksOf struct{ reconciler *reconcile.Reconciler }

// Compare compares down to each user and records what it found.
func (b booksOf) Compare(ctx context.Context, id string) (console.Verdict, error) {
	found, err := b.reconciler.Compare(ctx, id, reconcile.DepthUsers)
	if err == nil {
		err = b.reconciler.Record(ctx, &found)
	}
	return console.Verdict{Agrees: found.Agrees(), Lines: found.Differences}, err
}

// Repair repairs, and never gives up what was answered.
func (b booksOf) Repair(ctx context.Context, id string) (console.Verdict, error) {
	done, err := b.reconciler.Repair(ctx, id, reconcile.RepairHow{})
	if err == nil {
		err = b.reconciler.Record(ctx, &done.Left)
	}
	v := console.Verdict{Agrees: done.Left.Agrees()}
	for _, step := range done.Steps {
		v.Lines = append(v.Lines, fmt.Sprintf("Repaired %s: %s → %s", step.What, step.ValueBefore, step.ValueAfter))
	}
	for _, line := range done.Left.Differences {
		v.Lines = append(v.Lines, "Still: "+line)
	}
	return v, err
}
