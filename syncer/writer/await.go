package writer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"

	"gorm.io/gorm"
)

// appliedPoll is how often MySQL is asked for its offsets. A flush takes tens of milliseconds.
const appliedPoll = 10 * time.Millisecond

// AppliedStreams knows whether MySQL has all that the claim streams hold.
type AppliedStreams struct {
	db      *gorm.DB
	scripts *lua.Scripts
}

// NewAppliedStreams makes an AppliedStreams.
func NewAppliedStreams(db *gorm.DB, scripts *lua.Scripts) *AppliedStreams {
	return &AppliedStreams{db: db, scripts: scripts}
}

// AwaitApplied waits until MySQL has applied all that the claim streams held at the call. The error says that it has not until
// ctx ended, or that one of the servers does not answer.
func (a *AppliedStreams) AwaitApplied(ctx context.Context) error {
	all := make([]int, a.scripts.Partitions())
	for p := range all {
		all[p] = p
	}
	return a.AwaitPartitions(ctx, all)
}

// AwaitPartitions is AwaitApplied for some partitions.
func (a *AppliedStreams) AwaitPartitions(ctx context.Context, partitions []int) error {
	_, err := a.Await(ctx, partitions)
	return err
}

// Await is AwaitPartitions, and returns those that are applied also when others are not. Redis lost nothing of them that MySQL has.
func (a *AppliedStreams) Await(ctx context.Context, partitions []int) (applied []int, err error) {
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
			return applied, fmt.Errorf("writer: partitions %v are not applied: %w", left, err)
		}
	}
}

// behind are those of some partitions that are not ok, whose offset is before their tip, or whose entry at the offset Redis lacks.
func (a *AppliedStreams) behind(ctx context.Context, tips map[int]lua.EntryID, partitions []int) (left []int, err error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	offsets, err := Offsets(ctx, a.db.ConnPool, partitions...)
	if err != nil {
		return partitions, err
	}
	at := make(map[int]models.Offset)
	for _, p := range partitions {
		applied, err := lua.ParseEntryID(offsets[p].EntryID)
		switch {
		case err != nil:
			return partitions, err
		case applied.Less(tips[p]) || offsets[p].State != models.PartitionOK:
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
