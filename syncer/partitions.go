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

// CheckPartitions fixes the number of claim streams the first time it is called, and afterwards returns ErrPartitions,
// wrapped, for any other number: campaigns would be looked for in streams and slots where they are not.
func CheckPartitions(ctx context.Context, db *gorm.DB, n int) error {
	db = db.WithContext(ctx)
	mine := models.Setting{Name: settingPartitions, Value: strconv.Itoa(n)}
	if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&mine).Error; err != nil {
		return fmt.Errorf("syncer: partitions: %w", err)
	}
	var fixed models.Setting
	if err := db.Where("name = ?", settingPartitions).First(&fixed).Error; err != nil {
		return fmt.Errorf("syncer: partitions: %w", err)
	}
	if fixed.Value != mine.Value {
		return fmt.Errorf("%w: data was made with %s, configured are %d", ErrPartitions, fixed.Value, n)
	}
	return nil
}
