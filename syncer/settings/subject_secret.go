package settings

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/stored"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// ErrSubjectSecret reports stored subjects of
// another secret. Their limits would restart.
var ErrSubjectSecret = errors.New("settings: another secret of subjects is in use")

// namesSubjects selects campaigns that limit
// or shard by another subject than the user.
const namesSubjects = `shard_by <> '' OR REPLACE(limits, '"by":"user"', '') LIKE '%"by":%'`

// CheckSubjectSecret records the fingerprint of the secret that hashes
// subjects, if any. It returns a wrapped ErrSubjectSecret if another
// one is recorded and in use.
func CheckSubjectSecret(ctx context.Context, db *gorm.DB, secret string) error {
	mine := models.SecretFingerprint(secret)
	err := sqlstore.InTx(ctx, db, func(tx *gorm.DB) error {
		recorded, err := read(ctx, tx, subjectSecret)
		if err != nil || recorded == mine {
			return err
		}
		var used []string
		err = tx.Raw("SELECT campaign_id FROM definitions WHERE " + namesSubjects + " LIMIT 1").Scan(&used).Error
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return sqlstore.Final(fmt.Errorf(
				"%w: its fingerprint is %q, that of this process %q, and campaign %s limits subjects",
				ErrSubjectSecret, recorded, mine, used[0]))
		}
		row := stored.Setting{Name: subjectSecret, Value: mine}
		return tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error
	})
	if err != nil && !errors.Is(err, ErrSubjectSecret) {
		return fmt.Errorf("settings: secret of subjects: %w", err)
	}
	return err
}
