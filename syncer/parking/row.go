package parking

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

const payloadMax = 1 << 20 // bytes

// Put parks an event, unless it is parked.
func Put(db *gorm.DB, parked *models.ParkedEvent, at time.Time) error {
	parked.ParkedAt = at.UTC().Truncate(time.Millisecond)
	if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(parked).Error; err != nil {
		return fmt.Errorf("parking: %w", err)
	}
	return nil
}

// Row returns the row for any event, however broken.
func Row(r *models.RawEvent, reason string) models.ParkedEvent {
	id := r.ID
	if !sqlstore.IsPlain(id) || id == "" || len(id) > models.CampaignIDLength {
		sum := sha256.Sum256(r.Payload)
		id = hex.EncodeToString(sum[:])
	}
	payload := r.Payload
	if len(payload) > payloadMax {
		reason = fmt.Sprintf("(payload cut at %d of %d bytes) %s", payloadMax, len(payload), reason)
		payload = payload[:payloadMax]
	}
	if payload == nil {
		payload = []byte{}
	}
	return models.ParkedEvent{
		ID: id, LotID: sqlstore.Cut(r.LotID(), models.CampaignIDLength),
		UserID: sqlstore.Cut(r.UserID, models.UserIDLength),
		Reason: sqlstore.Cut(reason, models.ReasonLength), Payload: payload,
	}
}
