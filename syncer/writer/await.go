package writer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/lua"

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

// IsApplied reports whether MySQL has applied a claim stream up to entry id. applied is MySQL's
// offset, tip the last entry of the stream: an offset after it means that Redis lost the end of the
// stream, and the answer is no. Of an empty stream it is yes. Whoever asks whether MySQL is
// complete asks this.
func IsApplied(applied, id, tip lua.EntryID) bool {
	return tip == lua.EntryID{} || !applied.Less(id) && !tip.Less(applied)
}

// AwaitApplied waits until MySQL has applied all that the claim streams held at the call. The error
// says that it has not until ctx ended, or that one of the servers does not answer.
func (a *AppliedStreams) AwaitApplied(ctx context.Context) error {
	all := make([]int, a.scripts.Partitions())
	for p := range all {
		all[p] = p
	}
	return a.AwaitPartitions(ctx, all)
}

// AwaitPartitions is AwaitApplied for some partitions.
func (a *AppliedStreams) AwaitPartitions(ctx context.Context, partitions []int) error {
	tips, err := a.scripts.Tips(ctx, partitions)
	if err != nil {
		return err
	}
	left := slices.Sorted(maps.Keys(tips))
	for {
		left, err = a.behind(ctx, tips, left)
		if err != nil || len(left) == 0 {
			return err
		}
		if err := sleep.For(ctx, appliedPoll); err != nil {
			return fmt.Errorf("writer: partitions %v are not applied: %w", left, err)
		}
	}
}

// behind are those of some partitions whose offset is before their tip.
func (a *AppliedStreams) behind(ctx context.Context, tips map[int]lua.EntryID, partitions []int) (left []int, err error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	offsets, err := Offsets(ctx, a.db.ConnPool, partitions...)
	if err != nil {
		return nil, err
	}
	now, err := a.scripts.Tips(ctx, partitions) // an offset read before can't be behind these, unless Redis lost entries
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		applied, err := lua.ParseEntryID(offsets[p].EntryID)
		if err != nil {
			return nil, err
		}
		if !IsApplied(applied, tips[p], now[p]) {
			left = append(left, p)
		}
	}
	return left, nil
}
