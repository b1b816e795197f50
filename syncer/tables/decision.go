package tables

import (
	"database/sql"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Decide writes decision e of each of the claims; only the id differs.
// With follows it skips claims of which e is not the next decision. The
// caller rolls back if decided is less than the number of ids.
func Decide(tx *gorm.DB, e *event.Event, ids []string, follows bool) (decided int64, err error) {
	at := e.At.UTC().Format(sqlstore.TimeLayout)
	status, order := StatusAfter(e)
	set := map[string]any{
		"decisions": e.Decision, "status": status, "resolved_at": at, "release_reason": "",
		"order_id": sql.NullString{String: order, Valid: order != ""},
	}
	switch {
	case e.Type == event.ClaimExtended:
		set["held_until"] = e.ExpiresAt.UTC().Format(sqlstore.TimeLayout)
		set["resolved_at"] = nil
	case e.Type == event.ClaimReopened:
		set["reopened_at"] = at
		set["held_until"] = nil
		set["resolved_at"] = nil
	case status == models.ClaimReleased:
		set["release_reason"] = sqlstore.Cut(e.Reason, models.ReasonLength)
	}
	claims := tx.Table("claims"+sqlstore.ByKey(tx)).Where("id IN ?", ids)
	if follows { // another decision may have this number now
		claims = claims.Where("COALESCE(decisions, 0) = ?", e.Decision-1)
		if e.Type == event.ClaimReopened {
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
		if err := putDecided(tx, e, id); err != nil {
			return 0, err
		}
	}
	return done.RowsAffected, nil
}

// putDecided writes what a decision has outside
// claims: its order, and the end of its hold.
func putDecided(db *gorm.DB, e *event.Event, claimID string) error {
	switch e.Type {
	case event.ClaimRedeemed:
		order := stored.ClaimOrder{OrderID: e.OrderID, ClaimID: claimID}
		return db.Clauses(clause.OnConflict{DoNothing: true}).Create(&order).Error
	case event.ClaimReopened:
		order := stored.ClaimOrder{OrderID: e.OrderID, ClaimID: claimID, Reopened: new(1)}
		if err := db.Save(&order).Error; err != nil {
			return err
		}
	case event.ClaimExtended:
		if e.ExtendKey != "" {
			extension := stored.HoldExtension{ClaimID: claimID, KeyDigest: e.ExtendKey}
			if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&extension).Error; err != nil {
				return err
			}
		}
	default:
	}
	if e.ExpiresAt == nil {
		return nil
	}
	return db.Save(&stored.HoldDue{ClaimID: claimID, DueMs: e.ExpiresAt.UnixMilli()}).Error
}

// UndoBeside reverts putDecided. A row of hold_dues may stay: the
// expirer checks the claim.
func UndoBeside(db *gorm.DB, e *event.Event) error {
	order := stored.ClaimOrder{OrderID: e.OrderID, ClaimID: e.ClaimID}
	switch e.Type {
	case event.ClaimRedeemed:
		return db.Delete(&order).Error
	case event.ClaimReopened:
		return db.Save(&order).Error
	case event.ClaimExtended:
		return db.Delete(&stored.HoldExtension{ClaimID: e.ClaimID, KeyDigest: e.ExtendKey}).Error
	default:
		return nil
	}
}

// StatusAfter is the status of a claim after
// decision e, and the order of a redeemed one.
func StatusAfter(e *event.Event) (status models.ClaimStatus, orderID string) {
	switch {
	case e.Type == event.ClaimRedeemed:
		return models.ClaimRedeemed, e.OrderID
	case e.Type == event.ClaimReleased && e.Reason == models.ReasonExpired:
		return models.ClaimExpired, ""
	case e.Type == event.ClaimReleased:
		return models.ClaimReleased, ""
	}
	return models.ClaimClaimed, ""
}
