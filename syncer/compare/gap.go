package compare

import (
	"context"
	"fmt"
	"time"

	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/offset"

	"gorm.io/gorm"
)

// Gap is a partition whose claim stream
// no longer has entries that MySQL lacks.
type Gap struct {
	Partition   int
	From, First event.Offset
	Err         error // why First is unknown
}

// String describes what MySQL lacks.
func (g *Gap) String() string {
	return fmt.Sprintf("partition %d: MySQL has applied the claim stream up to %s, and it begins at %s", g.Partition,
		timeOf(g.From), timeOf(g.First))
}

func timeOf(at event.Offset) string {
	id, err := lua.ParseEntryID(at.EntryID)
	if err != nil || at.IsStart() {
		return "no entry"
	}
	return time.UnixMilli(int64(id.Ms)).UTC().Format(models.TimeLayout)
}

// Gaps returns the partitions with a gap.
func Gaps(ctx context.Context, db *gorm.DB, scripts *lua.Scripts) (all []Gap, err error) {
	partitions := make([]int, scripts.Partitions())
	for p := range partitions {
		partitions[p] = p
	}
	offsets, err := offset.Read(ctx, db, partitions...)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if offsets[p].State != event.PartitionGap {
			continue
		}
		first, err := scripts.First(ctx, p)
		all = append(all, Gap{Partition: p, From: offsets[p], First: first, Err: err})
	}
	return all, nil
}
