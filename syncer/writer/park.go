package writer

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

// Reasons for parking an event, as a label of a metric.
const (
	parkedData            = "data"             // the database refuses the row
	parkedID              = "id_taken"         // a different claim has its id
	parkedUnknownCampaign = "unknown_campaign" // its campaign does not exist
	parkedUnreadable      = "unreadable"       // its entry is no event
	parkedPacket          = "packet_taken"     // its packet can't be assigned to its claim
)

const parkedPayloadMax = 1 << 20 // bytes

type parkedRow struct {
	models.ParkedEvent

	kind string
}

// park takes a row that can never be written out
// of the batch. Its entry counts as applied.
func (a *application) park(r *models.RawEvent, kind, reason string) {
	a.parked = append(a.parked, parkedRow{parkedEvent(r, reason), kind})
}

func (a *application) insertParked() error {
	for i := range a.parked {
		if a.b.whole {
			return sqlstore.Final(fmt.Errorf("%w: %s: %s", errRefused, a.parked[i].ID, a.parked[i].Reason))
		}
		if err := putParked(a.tx, &a.parked[i].ParkedEvent, a.clock.Now()); err != nil {
			return err
		}
	}
	return nil
}

func putParked(db *gorm.DB, parked *models.ParkedEvent, at time.Time) error {
	parked.ParkedAt = at.UTC().Truncate(time.Millisecond)
	if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(parked).Error; err != nil {
		return fmt.Errorf("writer: park: %w", err)
	}
	return nil
}

// parkedEvent returns a row for any event, however broken.
func parkedEvent(r *models.RawEvent, reason string) models.ParkedEvent {
	id := r.ID
	if !sqlstore.IsPlain(id) || id == "" || len(id) > models.CampaignIDLength {
		sum := sha256.Sum256(r.Payload)
		id = hex.EncodeToString(sum[:])
	}
	payload := r.Payload
	if len(payload) > parkedPayloadMax {
		reason = fmt.Sprintf("(payload cut at %d of %d bytes) %s", parkedPayloadMax, len(payload), reason)
		payload = payload[:parkedPayloadMax]
	}
	if payload == nil {
		payload = []byte{}
	}
	return models.ParkedEvent{
		ID: id, CampaignID: sqlstore.Cut(r.LotID(), models.CampaignIDLength),
		UserID: sqlstore.Cut(r.UserID, models.UserIDLength),
		Reason: sqlstore.Cut(reason, models.ReasonLength), Payload: payload,
	}
}
