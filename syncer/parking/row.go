package parking

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

const payloadMax = 1 << 20 // bytes

// Put parks an event, unless it is parked.
func Put(db *gorm.DB, parked *stored.ParkedEvent, at time.Time) error {
	parked.ParkedAt = at.UTC().Truncate(time.Millisecond)
	if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(parked).Error; err != nil {
		return fmt.Errorf("parking: %w", err)
	}
	return nil
}

// Row returns the row for any event, however broken.
func Row(r *event.Raw, reason string) stored.ParkedEvent {
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
	return stored.ParkedEvent{
		ID: id, LotID: sqlstore.Cut(r.LotID(), models.CampaignIDLength),
		UserID: sqlstore.Cut(r.UserID, models.UserIDLength),
		Reason: sqlstore.Cut(reason, models.ReasonLength), Payload: payload,
	}
}
