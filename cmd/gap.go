package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"dibs/internal/audit"
	"dibs/internal/printer"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/writer"
)

// gap is a partition of whose claim stream MySQL lacks entries that Redis has no more.
type gap struct {
	partition   int
	from, first models.Offset
	err         error // why first is not known
}

func (g *gap) String() string {
	return fmt.Sprintf("partition %d: MySQL has applied the claim stream up to %s, and it begins at %s", g.partition, timeOf(g.from), timeOf(g.first))
}

// timeOf is when the entry at an offset was added.
func timeOf(at models.Offset) string {
	id, err := lua.ParseEntryID(at.EntryID)
	if err != nil || at.IsStart() {
		return "no entry"
	}
	return time.UnixMilli(int64(id.Ms)).UTC().Format(models.TimeLayout) //nolint:gosec // a time
}

// gaps are the partitions with a gap.
func (s *stack) gaps(ctx context.Context) (all []gap, err error) {
	partitions := make([]int, s.scripts.Partitions())
	for p := range partitions {
		partitions[p] = p
	}
	offsets, err := writer.Offsets(ctx, s.db.ConnPool, partitions...)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if offsets[p].State != models.PartitionGap {
			continue
		}
		first, err := s.scripts.First(ctx, p)
		all = append(all, gap{partition: p, from: offsets[p], first: first, err: err})
	}
	return all, nil
}

// errGap says that MySQL lacks what Redis has no more.
func errGap(all []gap) error {
	var failed []error
	for i := range all {
		failed = append(failed, fmt.Errorf("%w: %s. Roll MySQL's binary log forward, or give up what is between with --accept-gap", ErrDrift, &all[i]))
	}
	return errors.Join(failed...)
}

// acceptGaps gives up the entries that MySQL lacks and Redis has no more. A reader then begins where the stream does, as after Redis lost
// data: each campaign of the partition is loaded again, and the claims that nobody has are counted as lost.
func (s *stack) acceptGaps(ctx context.Context, w io.Writer) error {
	all, err := s.gaps(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("cmd: no partition has a gap")
	}
	for i := range all {
		g := &all[i]
		if g.err != nil {
			return g.err
		}
		to := g.first
		to.Generation = g.from.Generation + 1 // of which no reader has taken care
		to.State = models.PartitionRecovering
		moved, err := writer.MoveOffset(ctx, s.db, sqlstore.Now(), g.partition, g.from, to, func(tx *sqlstore.Tx) error {
			return audit.Put(ctx, tx, models.AuditGapAccepted, "", map[string]string{"offset": g.from.EntryID}, map[string]string{"offset": to.EntryID})
		})
		if err == nil && !moved {
			err = fmt.Errorf("%w: partition %d has moved since: look again", ErrDrift, g.partition)
		}
		if err != nil {
			return err
		}
		printer.Printf(w, "%s. What is between is given up; the campaigns of the partition are loaded again.\n", g)
	}
	return nil
}
