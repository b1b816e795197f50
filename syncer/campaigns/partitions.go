package campaigns

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// ErrPartitions says that this deployment was set up with another number of partitions.
var ErrPartitions = errors.New("syncer: number of partitions cannot change")

// settingPartitions names the row of settings that fixes the number of claim streams.
const settingPartitions = "partitions"

// CheckPartitions records the number of claim streams, and returns ErrPartitions, wrapped, when another number is recorded
// and there are campaigns: they would be looked for in streams and slots where they are not.
func CheckPartitions(ctx context.Context, db *gorm.DB, n int) error {
	err := sqlstore.Retry(ctx, func() error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return fixPartitions(tx, n) })
	})
	if err != nil && !errors.Is(err, ErrPartitions) {
		return fmt.Errorf("syncer: partitions: %w", err)
	}
	return err
}

// WatchEveryDefault is how often a process asks whether its number of claim streams is still the one recorded.
const DefaultPartitionsEvery = 2 * time.Second

// WatchPartitions asks after each pause whether another number of claim streams is recorded than n, and there are campaigns. If so it
// returns ErrPartitions, wrapped: this process was started before the first campaign was made, by one that has another number.
// A database that does not answer is asked again. Nil when ctx ends.
func WatchPartitions(ctx context.Context, db *gorm.DB, n int, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := partitionsLeft(ctx, db, n); errors.Is(err, ErrPartitions) {
			return err
		}
	}
}

// partitionsLeft asks once.
func partitionsLeft(ctx context.Context, db *gorm.DB, n int) error {
	var recorded []string
	err := db.WithContext(ctx).Raw("SELECT value FROM settings WHERE name = ? AND EXISTS (SELECT 1 FROM campaigns)", settingPartitions).
		Scan(&recorded).Error
	if err != nil || len(recorded) == 0 || recorded[0] == strconv.Itoa(n) {
		return err
	}
	return fmt.Errorf("%w: data is made with %s, this process runs with %d", ErrPartitions, recorded[0], n)
}

// samePlace refuses a campaign that this process would look for in another partition than it is in: it would find nothing there
// and take it for lost.
func (b Applier) SamePlace(c *models.Campaign) error {
	n := b.Scripts.Partitions()
	if mine := lua.PartitionOf(c.ID, n); mine != c.Partition {
		return fmt.Errorf("%w: campaign %s is in partition %d, by the %d of this process it would be in %d",
			ErrPartitions, c.ID, c.Partition, n, mine)
	}
	return nil
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
		return sqlstore.Final(fmt.Errorf("%w: data was made with %s, configured are %d", ErrPartitions, fixed.Value, n))
	}
	return tx.Save(&mine).Error
}

// samePartitions refuses a new campaign by a process that runs with another number than is recorded: it was started
// before that number was, when there were no campaigns yet.
func (r *Repository) samePartitions(ctx context.Context) error {
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
