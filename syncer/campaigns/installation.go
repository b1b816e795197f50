package campaigns

import (
	"context"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// The rows of settings that say which installation a database belongs to, and of which one a
// database that is not Dibs' own holds books.
const (
	settingInstallation = "installation"
	settingSource       = "events_of"
)

// installationBytes bounds the name of who made an installation, within a value of settings.
const installationBytes = 200

// Installation is the installation that a database belongs to: its id, the time at which it was
// made is in it, a blank, and the name of the process that made it. A database without one gets
// one. Two processes that give it one at a time get the same.
func Installation(ctx context.Context, db *gorm.DB, madeBy string) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("campaigns: installation: %w", err)
	}
	return firstSetting(ctx, db, settingInstallation, fmt.Sprintf("%s %.*s", id, installationBytes, madeBy))
}

// RecordSource is the installation whose events a database of somebody else's books has; the first
// call records it.
func RecordSource(ctx context.Context, db *gorm.DB, installation string) (string, error) {
	return firstSetting(ctx, db, settingSource, installation)
}

// firstSetting is the value of a row of settings, which is made of mine if there is none.
func firstSetting(ctx context.Context, db *gorm.DB, name, mine string) (value string, err error) {
	err = sqlstore.Retry(ctx, func() error {
		err := readSetting(ctx, db, name, &value)
		if err != nil || value != "" {
			return err
		}
		row := models.Setting{Name: name, Value: mine}
		err = db.WithContext(ctx).Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error
		if err != nil {
			return err
		}
		return readSetting(ctx, db, name, &value)
	})
	if err != nil {
		return "", fmt.Errorf("campaigns: %s: %w", name, err)
	}
	return value, nil
}

func readSetting(ctx context.Context, db *gorm.DB, name string, value *string) error {
	return sqlstore.On(db.WithContext(ctx)).Scan(value, "SELECT value FROM settings WHERE name = ?", name)
}

// Any reports whether a database has campaigns.
func Any(ctx context.Context, db *gorm.DB) (bool, error) {
	var ids []string
	err := sqlstore.On(db.WithContext(ctx)).Scan(&ids, "SELECT id FROM lots LIMIT 1")
	if err != nil {
		return false, fmt.Errorf("campaigns: any: %w", err)
	}
	return len(ids) > 0, nil
}
