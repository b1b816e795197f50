package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"dibs/internal/audit"
	"dibs/internal/printer"
	"dibs/internal/process"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/compare"
	"dibs/syncer/offset"

	"gorm.io/gorm"
)

// errGap means MySQL lacks entries that Redis no longer has.
func errGap(all []compare.Gap) error {
	var failed []error
	for i := range all {
		failed = append(failed, fmt.Errorf("%w: %s. Roll MySQL's binary log forward, or give up what is between "+
			"with --accept-gap", ErrDrift, &all[i]))
	}
	return errors.Join(failed...)
}

// acceptGaps gives up the entries that MySQL lacks and Redis no longer
// has. A reader then starts at the stream's begin, as after a data
// loss of Redis: each campaign of the partition is loaded again, and
// claims without a trace are counted as lost.
func acceptGaps(ctx context.Context, s *process.Stack, w io.Writer) error {
	all, err := compare.Gaps(ctx, s.DB, s.Scripts)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("cmd: no partition has a gap")
	}
	if err := reportHeld(ctx, s); err != nil {
		return err
	}
	for i := range all {
		g := &all[i]
		if g.Err != nil {
			return g.Err
		}
		to := g.First
		to.Generation = g.From.Generation + 1 // no reader has handled this one yet
		to.State = event.PartitionRecovering
		moved, err := offset.Move(ctx, s.DB, sqlstore.Now(), g.Partition, g.From, to, func(tx *gorm.DB) error {
			return audit.Put(ctx, tx, models.AuditGapAccepted, "", map[string]string{"offset": g.From.EntryID},
				map[string]string{"offset": to.EntryID})
		})
		if err == nil && !moved {
			err = fmt.Errorf("%w: partition %d has moved since: run it again", ErrDrift, g.Partition)
		}
		if err != nil {
			return err
		}
		printer.Printf(w, "%s. What is between is given up; the campaigns of the partition are loaded again.\n", g)
	}
	return nil
}

// reportHeld reports to MySQL how far Redis is with each campaign, as
// processes do after a loss: those that answered may be gone.
func reportHeld(ctx context.Context, s *process.Stack) error {
	held, err := s.Scripts.Held(ctx)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(held, sqlstore.PageSize) {
		at, err := s.Scripts.Positions(ctx, some)
		if err != nil {
			return err
		}
		seen := make(map[string]lua.Position, len(some))
		for i, id := range some {
			seen[id] = at[i]
		}
		if err := s.Loader.Report(ctx, seen); err != nil {
			return err
		}
	}
	return nil
}
