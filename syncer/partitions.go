package syncer

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dibs/models"
)

// ErrPartitions says that this deployment was set up with another number of partitions.
var ErrPartitions = errors.New("syncer: number of partitions cannot change")

// settingPartitions names the row of settings that fixes the number of claim streams.
const settingPartitions = "partitions"

// CheckPartitions records the number of claim streams, and returns ErrPartitions, wrapped, when another number is recorded
// and there are campaigns: they would be looked for in streams and slots where they are not.
func CheckPartitions(ctx context.Context, db *gorm.DB, n int) error {
	err := persist(ctx, triesMax, noNotice, func() error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return fixPartitions(tx, n) })
	})
	if err != nil && !errors.Is(err, ErrPartitions) {
		return fmt.Errorf("syncer: partitions: %w", err)
	}
	return err
}

func fixPartitions(tx *gorm.DB, n int) error {
	mine := models.Setting{Name: settingPartitions, Value: strconv.Itoa(n)}
	if err := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&mine).Error; err != nil {
		return err
	}
	var fixed models.Setting
	err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).Where("name = ?", settingPartitions).Take(&fixed).Error
	if err != nil || fixed.Value == mine.Value {
		return err
	}
	var campaigns []string
	if err := tx.Raw("SELECT id FROM campaigns LIMIT 1").Scan(&campaigns).Error; err != nil {
		return err
	}
	if len(campaigns) > 0 {
		return final(fmt.Errorf("%w: data was made with %s, configured are %d", ErrPartitions, fixed.Value, n))
	}
	return tx.Save(&mine).Error
}

// samePartitions refuses a new campaign by a process that runs with another number than is recorded: it was started
// before that number was, when there were no campaigns yet.
func (r *Campaigns) samePartitions(ctx context.Context) error {
	var recorded []string
	err := r.db.WithContext(ctx).Raw("SELECT value FROM settings WHERE name = ?", settingPartitions).Scan(&recorded).Error
	switch {
	case err != nil:
		return fmt.Errorf("syncer: partitions: %w", err)
	case len(recorded) == 1 && recorded[0] != strconv.Itoa(r.partitions):
		return fmt.Errorf("%w: recorded are %s, this process runs with %d", ErrPartitions, recorded[0], r.partitions)
	}
	return nil
}
