package settings

import (
	"context"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models/stored"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// installationBytes bounds the name of the installing process in settings.
const installationBytes = 200

// Installation returns the installation of a database. It is an id with
// the time of creation, a space, and the name of the process that made
// it. A database without one gets one; concurrent callers get the same.
func Installation(ctx context.Context, db *gorm.DB, madeBy string) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("settings: installation: %w", err)
	}
	return first(ctx, db, installation, fmt.Sprintf("%s %.*s", id, installationBytes, madeBy))
}

// RecordSource returns the installation whose
// events a ledger has. The first call records it.
func RecordSource(ctx context.Context, db *gorm.DB, of string) (string, error) {
	return first(ctx, db, source, of)
}

func first(ctx context.Context, db *gorm.DB, name, mine string) (value string, err error) {
	err = sqlstore.Retry(ctx, func() error {
		value, err = read(ctx, db, name)
		if err != nil || value != "" {
			return err
		}
		row := stored.Setting{Name: name, Value: mine}
		err = db.WithContext(ctx).Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error
		if err != nil {
			return err
		}
		value, err = read(ctx, db, name)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("settings: %s: %w", name, err)
	}
	return value, nil
}

// read returns the value of a setting, or "" if it has none.
func read(ctx context.Context, db *gorm.DB, name string) (value string, err error) {
	err = db.WithContext(ctx).Raw("SELECT value FROM settings WHERE name = ?", name).Scan(&value).Error
	return value, err
}

// InUse reports whether a database has campaigns.
func InUse(ctx context.Context, db *gorm.DB) (bool, error) {
	var ids []string
	err := db.WithContext(ctx).Raw("SELECT id FROM lots LIMIT 1").Scan(&ids).Error
	if err != nil {
		return false, fmt.Errorf("settings: in use: %w", err)
	}
	return len(ids) > 0, nil
}
