package settings

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models/stored"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// ErrPartitions reports data that was made with another number of partitions.
var ErrPartitions = errors.New("settings: number of partitions cannot change")

// CheckPartitions records the number of claim streams. With another
// number on record and campaigns, it returns a wrapped ErrPartitions:
// this process would use the wrong streams and slots. A recorded number
// is not written again, as MySQL may be read-only.
func CheckPartitions(ctx context.Context, db *gorm.DB, n int) error {
	recorded, err := read(ctx, db, partitions)
	if err != nil {
		return fmt.Errorf("settings: partitions: %w", err)
	}
	if recorded == strconv.Itoa(n) {
		return nil
	}
	err = sqlstore.InTx(ctx, db, func(tx *gorm.DB) error { return fixPartitions(ctx, tx, n) })
	if err != nil && !errors.Is(err, ErrPartitions) {
		return fmt.Errorf("settings: partitions: %w", err)
	}
	return err
}

// DefaultPartitionsEvery is the pause between two checks of WatchPartitions.
const DefaultPartitionsEvery = 2 * time.Second

// WatchPartitions returns a wrapped ErrPartitions once another number
// of claim streams than n is on record and there are campaigns. Then
// another process made the first campaign after this one had started.
// It ignores a failing database, and returns nil when ctx ends.
func WatchPartitions(ctx context.Context, db *gorm.DB, n int, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := comparePartitions(ctx, db, n); errors.Is(err, ErrPartitions) {
			return err
		}
	}
}

func comparePartitions(ctx context.Context, db *gorm.DB, n int) error {
	var recorded []string
	err := db.WithContext(ctx).Raw("SELECT value FROM settings WHERE name = ? AND EXISTS (SELECT 1 FROM campaigns)", partitions).
		Scan(&recorded).Error
	if err != nil || len(recorded) == 0 || recorded[0] == strconv.Itoa(n) {
		return err
	}
	return fmt.Errorf("%w: data is made with %s, this process runs with %d", ErrPartitions, recorded[0], n)
}

func fixPartitions(ctx context.Context, tx *gorm.DB, n int) error {
	mine := stored.Setting{Name: partitions, Value: strconv.Itoa(n)}
	if err := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&mine).Error; err != nil {
		return err
	}
	var fixed stored.Setting
	err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).Where("name = ?", partitions).Take(&fixed).Error
	if err != nil || fixed.Value == mine.Value {
		return err
	}
	isUsed, err := InUse(ctx, tx)
	if err != nil {
		return err
	}
	if isUsed {
		return sqlstore.Final(fmt.Errorf("%w: data was made with %s, configured are %d", ErrPartitions, fixed.Value, n))
	}
	return tx.Save(&mine).Error
}

// SamePartitions refuses a new campaign if another number of partitions
// was recorded after this process started.
func SamePartitions(ctx context.Context, db *gorm.DB, n int) error {
	recorded, err := read(ctx, db, partitions)
	switch {
	case err != nil:
		return fmt.Errorf("settings: partitions: %w", err)
	case recorded != "" && recorded != strconv.Itoa(n):
		return fmt.Errorf("%w: recorded are %s, this process runs with %d", ErrPartitions, recorded, n)
	}
	return nil
}
