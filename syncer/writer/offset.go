package writer

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
	"dibs/syncer/adder"
)

// positionSlots bounds the stored positions
// of a stream: one per second, modulo it.
const positionSlots = 100

// Offsets returns MySQL's offsets of claim
// streams, by partition; NoOffset if it has none.
func Offsets(ctx context.Context, db *gorm.DB, partitions ...int) (map[int]models.Offset, error) {
	offsets, err := readOffsets(db.WithContext(ctx), partitions)
	if err != nil {
		return nil, fmt.Errorf("writer: offsets: %w", err)
	}
	for _, p := range partitions {
		if _, known := offsets[p]; !known {
			offsets[p] = models.NoOffset()
		}
	}
	return offsets, nil
}

func readOffsets(db *gorm.DB, partitions []int) (map[int]models.Offset, error) {
	var rows []models.StreamRecord
	err := db.Where("partition_no IN ?", partitions).Order("partition_no").Find(&rows).Error
	offsets := make(map[int]models.Offset, len(rows))
	for i := range rows {
		offsets[rows[i].Partition] = rows[i].Offset()
	}
	return offsets, err
}

// Applied returns the id of the last applied
// entry of a claim stream; zero is none.
func Applied(ctx context.Context, db *gorm.DB, partition int) (lua.EntryID, error) {
	offsets, err := Offsets(ctx, db, partition)
	if err != nil {
		return lua.EntryID{}, err
	}
	return lua.ParseEntryID(offsets[partition].EntryID)
}

func newOffset(db *gorm.DB, partition int) error {
	return db.Clauses(clause.OnConflict{DoNothing: true}).Select("partition_no").
		Create(&models.StreamRecord{Partition: partition}).Error
}

// BeginAnew resets the streams for an embedded Redis, which starts empty.
func BeginAnew(ctx context.Context, db *gorm.DB) error {
	start := models.NoOffset()
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
		return fmt.Errorf("writer: reset streams: %w", err)
	}
	return nil
}

// movedError reports streams whose offset is
// not where the entries of a flush start.
type movedError struct {
	applied []int // at the end of the entries: an earlier attempt was committed
	lost    []int // moved by another process
}

func (e *movedError) Error() string {
	return fmt.Sprintf("writer: the offsets of partitions %v moved", append(e.applied, e.lost...))
}

// lockOffsets locks streams until the transaction ends. It fails with a
// final movedError unless each offset is where its entries start.
func lockOffsets(tx *gorm.DB, streams []adder.Taken) error {
	if len(streams) == 0 {
		return nil
	}
	partitions := make([]int, len(streams))
	for i := range streams {
		partitions[i] = streams[i].Partition
	}
	offsets, err := readOffsets(tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}), partitions)
	if err != nil {
		return err
	}
	moved := &movedError{}
	for i := range streams {
		switch s := &streams[i]; offsets[s.Partition] {
		case s.From:
		case s.Upto:
			moved.applied = append(moved.applied, s.Partition)
		default:
			moved.lost = append(moved.lost, s.Partition)
		}
	}
	if len(moved.applied)+len(moved.lost) > 0 {
		return sqlstore.Final(moved)
	}
	return nil
}

func moveOffsets(ctx context.Context, tx *gorm.DB, streams []adder.Taken, now time.Time) error {
	if len(streams) == 0 {
		return nil
	}
	var ids, events, reads, generations, states, args []any
	for i := range streams {
		s := &streams[i]
		ids = append(ids, s.Partition, s.Upto.EntryID)
		events = append(events, s.Partition, s.Upto.EventID)
		reads = append(reads, s.Partition, s.Upto.Read)
		generations = append(generations, s.Partition, s.Upto.Generation)
		states = append(states, s.Partition, s.Upto.State)
	}
	choose := "CASE partition_no" + strings.Repeat(" WHEN ? THEN ?", len(streams)) + " END"
	query := "UPDATE streams SET offset_id = " + choose + ", offset_event_id = " + choose + ", offset_read = " + choose +
		", generation = " + choose + ", state = " + choose + ", offset_at = ? WHERE partition_no IN " + sqlstore.Marks(len(streams))
	args = append(slices.Concat(ids, events, reads, generations, states), now.UTC().Format(sqlstore.TimeLayout))
	for i := range streams {
		args = append(args, streams[i].Partition)
	}
	_, err := sqlstore.Exec(ctx, tx, query, args...)
	if err != nil {
		return err
	}
	return nil
}

// putPositions stores the offsets as the position of this second.
func putPositions(ctx context.Context, tx *gorm.DB, streams []adder.Taken, now time.Time) error {
	if len(streams) == 0 {
		return nil
	}
	const head = "REPLACE INTO stream_positions (partition_no, slot, entry_id, event_id, entries_read) VALUES "
	s := sqlstore.NewStatement(head, len(streams)*sqlstore.RowBytes)
	for i := range streams {
		s.BeginRow(i)
		s.Int(int64(streams[i].Partition))
		s.Int(now.Unix() % positionSlots)
		s.Text(streams[i].Upto.EntryID)
		s.Text(streams[i].Upto.EventID)
		s.Int(streams[i].Upto.Read)
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
func (w *Writer) Positions(ctx context.Context, partition int) (positions []models.Offset, err error) {
	err = w.db.WithContext(ctx).Table("stream_positions").Where("partition_no = ?", partition).
		Select("entry_id, event_id, entries_read AS `read`").Order("entries_read DESC").Scan(&positions).Error
	if err != nil {
		return nil, fmt.Errorf("writer: positions of partition %d: %w", partition, err)
	}
	return positions, nil
}

// Move sets the offset, generation and state of a partition by
// compare-and-set. After a move to an earlier offset, entries are read
// again, and existing rows stay as they are.
func (w *Writer) Move(ctx context.Context, partition int, from, to models.Offset) (moved bool, err error) {
	return MoveOffset(ctx, w.db, w.clock.Now(), partition, from, to, func(*gorm.DB) error { return nil })
}

// MoveOffset is Writer.Move without a Writer.
// The function and runs in the same transaction.
func MoveOffset(
	ctx context.Context, db *gorm.DB, now time.Time, partition int, from, to models.Offset, and func(tx *gorm.DB) error,
) (moved bool, err error) {
	err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		stream := []adder.Taken{{Partition: partition, From: from, Upto: to}}
		if err := lockOffsets(tx, stream); err != nil {
			return err
		}
		if err := moveOffsets(ctx, tx, stream, now); err != nil {
			return err
		}
		err := tx.Exec("DELETE FROM stream_positions WHERE partition_no = ? AND entries_read > ?", partition, to.Read).Error
		if err != nil {
			return err
		}
		return and(tx)
	})
	var other *movedError
	switch {
	case errors.As(err, &other):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("writer: partition %d: %w", partition, err)
	}
	return true, nil
}
