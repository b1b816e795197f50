// Package offset stores and reads the offset of each claim stream: the
// entry that MySQL applied last. It also waits for MySQL to apply all that
// a stream has.
//
// The offset is in the stream's row of table streams. It moves by
// compare-and-set, in the transaction that writes what the entries say.
package offset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
)

// positionSlots bounds the stored positions
// of a stream: one per second, modulo it.
const positionSlots = 100

// Step moves the offset of a stream.
type Step struct {
	Partition int
	From, To  event.Offset
}

// Read returns MySQL's offsets of claim
// streams, by partition; NoOffset if it has none.
func Read(ctx context.Context, db *gorm.DB, partitions ...int) (map[int]event.Offset, error) {
	offsets, err := known(db.WithContext(ctx), partitions)
	if err != nil {
		return nil, fmt.Errorf("offset: read: %w", err)
	}
	for _, p := range partitions {
		if _, is := offsets[p]; !is {
			offsets[p] = event.NoOffset()
		}
	}
	return offsets, nil
}

// known returns the offsets that MySQL has, by partition.
func known(db *gorm.DB, partitions []int) (map[int]event.Offset, error) {
	var rows []stored.StreamRecord
	err := db.Where("partition_no IN ?", partitions).Order("partition_no").Find(&rows).Error
	if err != nil {
		return nil, err
	}
	offsets := make(map[int]event.Offset, len(rows))
	for i := range rows {
		offsets[rows[i].Partition] = rows[i].Offset()
	}
	return offsets, nil
}

// Applied returns the id of the last applied
// entry of a claim stream; zero is none.
func Applied(ctx context.Context, db *gorm.DB, partition int) (lua.EntryID, error) {
	offsets, err := Read(ctx, db, partition)
	if err != nil {
		return lua.EntryID{}, err
	}
	return lua.ParseEntryID(offsets[partition].EntryID)
}

// ReadOrCreate is Read of one partition. A stream
// without an offset gets one, before its first entry.
func ReadOrCreate(ctx context.Context, db *gorm.DB, partition int) (event.Offset, error) {
	db = db.WithContext(ctx)
	offsets, err := known(db, []int{partition})
	at, is := offsets[partition]
	if err == nil && !is {
		at = event.NoOffset()
		err = db.Clauses(clause.OnConflict{DoNothing: true}).Select("partition_no").
			Create(&stored.StreamRecord{Partition: partition}).Error
	}
	if err != nil {
		return at, fmt.Errorf("offset: partition %d: %w", partition, err)
	}
	return at, nil
}

// Reset resets the streams for an embedded Redis, which starts empty.
func Reset(ctx context.Context, db *gorm.DB) error {
	start := event.NoOffset()
	err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		err := tx.Exec("UPDATE streams SET offset_id = ?, offset_event_id = '', offset_read = 0, state = ?",
			start.EntryID, start.State).Error
		if err != nil {
			return err
		}
		if err := tx.Exec("DELETE FROM stream_positions").Error; err != nil {
			return err
		}
		return tx.Exec("UPDATE lots SET residency = ? WHERE residency = ?",
			models.ResidencyEvicted, models.ResidencyResident).Error
	})
	if err != nil {
		return fmt.Errorf("offset: reset streams: %w", err)
	}
	return nil
}

// MovedError reports streams whose
// offset is not where a step starts.
type MovedError struct {
	Applied []int // at the end of the step: an earlier attempt was committed
	Lost    []int // moved by another process
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("offset: partitions %v have moved", slices.Concat(e.Applied, e.Lost))
}

// Lock locks streams until the transaction ends. It fails with a
// final MovedError unless each offset is where its step starts.
func Lock(tx *gorm.DB, steps []Step) error {
	if len(steps) == 0 {
		return nil
	}
	partitions := make([]int, len(steps))
	for i := range steps {
		partitions[i] = steps[i].Partition
	}
	offsets, err := known(tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}), partitions)
	if err != nil {
		return err
	}
	moved := &MovedError{}
	for i := range steps {
		switch s := &steps[i]; offsets[s.Partition] {
		case s.From:
		case s.To:
			moved.Applied = append(moved.Applied, s.Partition)
		default:
			moved.Lost = append(moved.Lost, s.Partition)
		}
	}
	if len(moved.Applied)+len(moved.Lost) > 0 {
		return sqlstore.Final(moved)
	}
	return nil
}

// Store takes the steps. Their streams must be locked.
func Store(ctx context.Context, tx *gorm.DB, steps []Step, now time.Time) error {
	if len(steps) == 0 {
		return nil
	}
	var ids, events, reads, generations, states, args []any
	for i := range steps {
		s := &steps[i]
		ids = append(ids, s.Partition, s.To.EntryID)
		events = append(events, s.Partition, s.To.EventID)
		reads = append(reads, s.Partition, s.To.Read)
		generations = append(generations, s.Partition, s.To.Generation)
		states = append(states, s.Partition, s.To.State)
	}
	choose := "CASE partition_no" + strings.Repeat(" WHEN ? THEN ?", len(steps)) + " END"
	query := "UPDATE streams SET offset_id = " + choose + ", offset_event_id = " + choose + ", offset_read = " + choose +
		", generation = " + choose + ", state = " + choose + ", offset_at = ? WHERE partition_no IN " + sqlstore.Marks(len(steps))
	args = append(slices.Concat(ids, events, reads, generations, states), now.UTC().Format(sqlstore.TimeLayout))
	for i := range steps {
		args = append(args, steps[i].Partition)
	}
	_, err := sqlstore.Exec(ctx, tx, query, args...)
	return err
}

// Keep stores where the steps lead as the position of this second.
func Keep(ctx context.Context, tx *gorm.DB, steps []Step, now time.Time) error {
	if len(steps) == 0 {
		return nil
	}
	const head = "REPLACE INTO stream_positions (partition_no, slot, entry_id, event_id, entries_read) VALUES "
	s := sqlstore.NewStatement(head, len(steps)*sqlstore.RowBytes)
	for i := range steps {
		s.BeginRow(i)
		s.Int(int64(steps[i].Partition))
		s.Int(now.Unix() % positionSlots)
		s.Text(steps[i].To.EntryID)
		s.Text(steps[i].To.EventID)
		s.Int(steps[i].To.Read)
		s.EndRow()
	}
	_, err := sqlstore.Exec(ctx, tx, s.SQL(), s.Args...)
	if err != nil {
		return fmt.Errorf("stream_positions: %w", err)
	}
	return nil
}

// Positions returns recent offsets of a stream,
// newest first. Redis may have lost some.
func Positions(ctx context.Context, db *gorm.DB, partition int) (positions []event.Offset, err error) {
	err = db.WithContext(ctx).Table("stream_positions").Where("partition_no = ?", partition).
		Select("entry_id, event_id, entries_read AS `read`").Order("entries_read DESC").Scan(&positions).Error
	if err != nil {
		return nil, fmt.Errorf("offset: positions of partition %d: %w", partition, err)
	}
	return positions, nil
}

// Move sets the offset, generation and state of a partition by
// compare-and-set. After a move to an earlier offset, entries are read
// again, and existing rows stay as they are. also runs in the same
// transaction.
func Move(
	ctx context.Context, db *gorm.DB, now time.Time, partition int, from, to event.Offset, also func(tx *gorm.DB) error,
) (moved bool, err error) {
	err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		steps := []Step{{Partition: partition, From: from, To: to}}
		if err := Lock(tx, steps); err != nil {
			return err
		}
		if err := Store(ctx, tx, steps, now); err != nil {
			return err
		}
		err := tx.Exec("DELETE FROM stream_positions WHERE partition_no = ? AND entries_read > ?", partition, to.Read).Error
		if err != nil {
			return err
		}
		return also(tx)
	})
	var other *MovedError
	switch {
	case errors.As(err, &other):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("offset: partition %d: %w", partition, err)
	}
	return true, nil
}
