package campaigns

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/writer"
)

const (
	behindWait    = 20 * time.Millisecond // between two reads from a MySQL that is behind
	behindWaitMax = time.Second           // of all of them
)

// awaitKnown waits while MySQL is behind what this process knows of a campaign: entries
// that it has yet to read again would undo a change. Errors: models.ErrBehind.
func (r *Repository) awaitKnown(ctx context.Context, id string, shards int) error {
	var partitions []int
	for _, lot := range append(models.ShardIDs(id, shards), id) {
		partitions = append(partitions, lua.PartitionOf(lot, r.partitions))
	}
	slices.Sort(partitions)
	partitions = slices.Compact(partitions)
	for waited := time.Duration(0); ; waited += behindWait {
		offsets, err := writer.Offsets(ctx, r.db.ConnPool, partitions...)
		if err != nil {
			return err
		}
		isBehind := false
		for _, p := range partitions {
			is, err := r.applier.scripts.IsBehind(p, offsets[p])
			if err != nil {
				return err
			}
			isBehind = isBehind || is
		}
		switch {
		case !isBehind:
			return nil
		case waited >= behindWaitMax:
			return fmt.Errorf("%w: of campaign %s", models.ErrBehind, id)
		}
		if err := sleep.For(ctx, behindWait); err != nil {
			return err
		}
	}
}

// known reads a campaign before a change. Errors: models.ErrNotFound, models.ErrBehind.
func (r *Repository) known(ctx context.Context, id string) (models.Campaign, error) {
	if err := r.awaitKnown(ctx, id, 1); err != nil {
		return models.Campaign{}, err
	}
	c, err := r.Get(ctx, id)
	if err != nil || !c.IsSharded() {
		return c, err
	}
	return c, r.awaitKnown(ctx, id, c.Shards)
}
