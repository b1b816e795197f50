package offset

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models/event"

	"gorm.io/gorm"
)

// appliedPoll is the pause between two reads
// of the offsets. A flush takes tens of ms.
const appliedPoll = 10 * time.Millisecond

// Streams waits for MySQL to apply the claim streams.
type Streams struct {
	db      *gorm.DB
	scripts *lua.Scripts
}

// NewStreams returns a Streams.
func NewStreams(db *gorm.DB, scripts *lua.Scripts) *Streams {
	return &Streams{db: db, scripts: scripts}
}

// AwaitApplied waits until MySQL has applied all that the streams had
// at the call. It fails if ctx ends first, or a server does not answer.
func (a *Streams) AwaitApplied(ctx context.Context) error {
	all := make([]int, a.scripts.Partitions())
	for p := range all {
		all[p] = p
	}
	return a.AwaitPartitions(ctx, all)
}

// AwaitPartitions is AwaitApplied for some partitions.
func (a *Streams) AwaitPartitions(ctx context.Context, partitions []int) error {
	_, err := a.Await(ctx, partitions)
	return err
}

// Await returns the applied partitions, even if others are not. Redis
// has not lost entries of them that MySQL has.
func (a *Streams) Await(ctx context.Context, partitions []int) (applied []int, err error) {
	tips, err := a.scripts.Tips(ctx, partitions)
	if err != nil {
		return nil, err
	}
	left := slices.Clone(partitions)
	for {
		left, err = a.behind(ctx, tips, left)
		applied = slices.DeleteFunc(slices.Clone(partitions), func(p int) bool { return slices.Contains(left, p) })
		if err != nil || len(left) == 0 {
			return applied, err
		}
		if err := sleep.For(ctx, appliedPoll); err != nil {
			return applied, fmt.Errorf("offset: partitions %v are not applied: %w", left, err)
		}
	}
}

// behind returns the partitions that are not ok, whose offset is before
// their tip, or whose entry at the offset is missing in Redis.
func (a *Streams) behind(ctx context.Context, tips map[int]lua.EntryID, partitions []int) (left []int, err error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	offsets, err := Read(ctx, a.db, partitions...)
	if err != nil {
		return partitions, err
	}
	at := make(map[int]event.Offset)
	for _, p := range partitions {
		applied, err := lua.ParseEntryID(offsets[p].EntryID)
		switch {
		case err != nil:
			return partitions, err
		case applied.Less(tips[p]) || offsets[p].State != event.PartitionOK:
			left = append(left, p)
		default:
			at[p] = offsets[p]
		}
	}
	lacking, err := a.scripts.Lacking(ctx, at)
	if err != nil {
		return partitions, err
	}
	return append(left, lacking...), nil
}
