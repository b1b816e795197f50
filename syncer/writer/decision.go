package writer

import (
	"context"
	"database/sql"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// WriteDecision writes what was decided of claims, which is e for each of them but for its id. With follows only those are decided of which
// it is the next decision. It returns how many that were; if that is not all of them, what was written is to be rolled back.
func WriteDecision(
	ctx context.Context, tx *sqlstore.Tx, db *gorm.DB, e *models.Event, ids []string, follows bool,
) (decided int64, err error) {
	in := tx.Gorm(ctx, db)
	at := e.At.UTC().Format(sqlstore.TimeLayout)
	status, order := statusAfter(e)
	set := map[string]any{
		"decisions": e.Decision, "status": status, "order_id": sql.NullString{String: order, Valid: order != ""}, "release_reason": "", "resolved_at": at,
	}
	switch {
	case e.Type == models.EventClaimExtended:
		set["held_until"] = e.ExpiresAt.UTC().Format(sqlstore.TimeLayout)
		set["resolved_at"] = nil
	case e.Type == models.EventClaimReopened:
		set["reopened_at"] = at
		set["held_until"] = nil
		set["resolved_at"] = nil
	case status == models.ClaimReleased:
		set["release_reason"] = sqlstore.Cut(e.Reason, models.ReasonLength)
	}
	claims := in.Table("claims"+sqlstore.ByKey(tx)).Where("id IN ?", ids)
	if follows { // the decision before may be another by now, of the same number
		claims = claims.Where("COALESCE(decisions, 0) = ?", e.Decision-1)
		if e.Type == models.EventClaimReopened {
			claims = claims.Where("status = ? AND order_id = ?", models.ClaimRedeemed, e.OrderID)
		} else {
			claims = claims.Where("status = ?", models.ClaimClaimed)
		}
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

// statusAfter is the status that a decision gives a claim, and the order that has it then.
func statusAfter(e *models.Event) (status models.ClaimStatus, orderID string) {
	switch {
	case e.Type == models.EventClaimRedeemed:
		return models.ClaimRedeemed, e.OrderID
	case e.Type == models.EventClaimReleased && e.Reason == models.ReasonExpired:
		return models.ClaimExpired, ""
	case e.Type == models.EventClaimReleased:
		return models.ClaimReleased, ""
	}
	return models.ClaimClaimed, ""
}
