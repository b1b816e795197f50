package cmd

import (
	"context"
	"fmt"

	"dibs/api"
	"dibs/api/console"
	"dibs/consumer"
	"dibs/syncer/reconcile"
	"dibs/syncer/records"
)

// consoleDeps are what the console needs besides the API; nil when it is off.
func (s *stack) consoleDeps() *api.ConsoleDeps {
	if !s.cfg.Console {
		return nil
	}
	deps := &api.ConsoleDeps{
		Redis: s.scripts, MySQL: s.mysqlPool, Campaigns: s.campaigns, Records: records.New(s.db), Parked: parkedOf{s}, Ended: s.scripts,
		Books: booksOf{reconcile.New(s.db, s.scripts, s.hydrator, s.log, nil)},
	}
	for _, of := range s.cfg.Sources() {
		deps.Settings = append(deps.Settings, console.Setting(of))
	}
	return deps
}

// mysqlPool asks MySQL whether it answers.
func (s *stack) mysqlPool(ctx context.Context) (console.Pool, error) {
	pool, err := s.db.DB()
	if err == nil {
		err = pool.PingContext(ctx)
	}
	if err != nil {
		return console.Pool{}, err
	}
	stats := pool.Stats()
	return console.Pool{InUse: stats.InUse, Conns: stats.MaxOpenConnections}, nil
}

// parkedOf are the parked messages of all groups, for the console.
type parkedOf struct{ s *stack }

// Counts counts them by group.
func (p parkedOf) Counts(ctx context.Context) (map[string]int64, error) {
	counts := make(map[string]int64)
	for _, group := range p.s.cfg.Groups {
		n, err := p.lot(group).Count(ctx)
		if err != nil {
			return nil, err
		}
		counts[group] = n
	}
	return counts, nil
}

func (p parkedOf) lot(group string) *consumer.ParkingLot {
	return consumer.NewParkingLot(p.s.rdb, p.s.cfg.Partitions, group)
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
