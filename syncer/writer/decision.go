package writer

import (
	"context"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// WriteDecision writes what was decided of claims, which is e for each of them but for its id. only is a condition on the claims, with
// args; "" is none. It returns how many claims were decided; if that is not all of them, what was written is to be rolled back.
func WriteDecision(
	ctx context.Context, tx *sqlstore.Tx, db *gorm.DB, e *models.Event, ids []string, only string, args ...any,
) (decided int64, err error) {
	in := tx.Gorm(ctx, db)
	at := e.At.UTC().Format(sqlstore.TimeLayout)
	set := map[string]any{"decisions": e.Decision}
	switch e.Type {
	case models.EventClaimExtended:
		set["held_until"] = e.ExpiresAt.UTC().Format(sqlstore.TimeLayout)
	case models.EventClaimReopened:
		set["status"] = models.ClaimClaimed
		set["order_id"] = nil
		set["release_reason"] = ""
		set["resolved_at"] = nil
		set["reopened_at"] = at
		set["held_until"] = nil
	case models.EventClaimRedeemed:
		set["status"] = models.ClaimRedeemed
		set["order_id"] = e.OrderID
		set["release_reason"] = ""
		set["resolved_at"] = at
	default:
		set["status"] = models.ClaimReleased
		set["order_id"] = nil
		set["release_reason"] = sqlstore.Cut(e.Reason, models.ReasonLength)
		set["resolved_at"] = at
		if e.Reason == models.ReasonExpired {
			set["status"] = models.ClaimExpired
			set["release_reason"] = ""
		}
	}
	claims := in.Table("claims"+sqlstore.ByKey(tx)).Where("id IN ?", ids)
	if only != "" {
		claims = claims.Where(only, args...)
	}
	done := claims.Updates(set)
	if done.Error != nil {
		return 0, done.Error
	}
	for _, id := range ids {
		if err := putDecided(in, e, id); err != nil {
			return 0, err
		}
	}
	return done.RowsAffected, nil
}

// putDecided writes what a decision has beside the claim: its order, and when its hold ends.
func putDecided(db *gorm.DB, e *models.Event, claimID string) error {
	switch e.Type {
	case models.EventClaimRedeemed:
		order := models.ClaimOrder{OrderID: e.OrderID, ClaimID: claimID}
		return db.Clauses(clause.OnConflict{DoNothing: true}).Create(&order).Error
	case models.EventClaimReopened:
		order := models.ClaimOrder{OrderID: e.OrderID, ClaimID: claimID, Reopened: new(1)}
		if err := db.Save(&order).Error; err != nil {
			return err
		}
	case models.EventClaimExtended:
		if e.ExtendKey != "" {
			extension := models.HoldExtension{ClaimID: claimID, KeyDigest: e.ExtendKey}
			if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&extension).Error; err != nil {
				return err
			}
		}
	}
	if e.ExpiresAt == nil {
		return nil
	}
	return db.Save(&models.HoldDue{ClaimID: claimID, DueMs: e.ExpiresAt.UnixMilli()}).Error
}

// undoBeside takes back what putDecided wrote. A row of hold_dues may stay: whoever finds it looks at the claim.
func undoBeside(db *gorm.DB, e *models.Event) error {
	order := models.ClaimOrder{OrderID: e.OrderID, ClaimID: e.ClaimID}
	switch e.Type {
	case models.EventClaimRedeemed:
		return db.Delete(&order).Error
	case models.EventClaimReopened:
		return db.Save(&order).Error
	case models.EventClaimExtended:
		return db.Delete(&models.HoldExtension{ClaimID: e.ClaimID, KeyDigest: e.ExtendKey}).Error
	}
	return nil
}
