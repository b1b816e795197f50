package campaigns

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/offset"
)

const (
	behindWait    = 10 * time.Millisecond // between two reads from a MySQL that is behind
	behindWaitMax = time.Second           // of all of them
)

// AwaitKnown waits until MySQL is no longer behind what this process knows of
// something. Errors: models.ErrBehind after a second, and those of isBehind.
func AwaitKnown(ctx context.Context, what string, isBehind func() (bool, error)) error {
	for waited := time.Duration(0); ; waited += behindWait {
		is, err := isBehind()
		switch {
		case err != nil || !is:
			return err
		case waited >= behindWaitMax:
			return fmt.Errorf("%w: of %s", models.ErrBehind, what)
		}
		if err := sleep.For(ctx, behindWait); err != nil {
			return err
		}
	}
}

// awaitKnown is AwaitKnown for a campaign. Entries that MySQL has yet
// to read again would undo a change.
func (s Sender) awaitKnown(ctx context.Context, id string, shards int) error {
	partitions := s.partitionsOf(append(models.ShardIDs(id, shards), id))
	return AwaitKnown(ctx, "campaign "+id, func() (isBehind bool, err error) {
		offsets, err := offset.Read(ctx, s.db, partitions...)
		for i := 0; err == nil && !isBehind && i < len(partitions); i++ {
			isBehind, err = s.scripts.IsBehind(partitions[i], offsets[partitions[i]])
		}
		return isBehind, err
	})
}

// partitionsOf returns the partitions of lots, in order.
func (s Sender) partitionsOf(lots []string) (partitions []int) {
	for _, lot := range lots {
		partitions = append(partitions, lua.PartitionOf(lot, s.scripts.Partitions()))
	}
	slices.Sort(partitions)
	return slices.Compact(partitions)
}

// Known reads a campaign before a change.
// Errors: models.ErrNotFound, models.ErrBehind.
func (s Sender) Known(ctx context.Context, id string) (models.Campaign, error) {
	if err := s.awaitKnown(ctx, id, 1); err != nil {
		return models.Campaign{}, err
	}
	c, err := Read(s.db.WithContext(ctx), id)
	if err != nil || !c.IsSharded() {
		return c, err
	}
	return c, s.awaitKnown(ctx, id, c.Shards)
}
