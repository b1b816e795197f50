package writer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// Why events are parked, as the label of a metric.
const (
	parkedData            = "data"             // the database refuses the row
	parkedID              = "id_taken"         // a different claim has its id
	parkedSeqTaken        = "place_taken"      // a different claim has its seq in the campaign
	parkedUnknownCampaign = "unknown_campaign" // its campaign does not exist
	parkedPacket          = "packet_taken"     // its packet belongs to another claim, or cannot be given
)

const parkedPayloadMax = 1 << 20 // bytes

// park stores an event that can never be written, with its payload, and says so in the log and in a metric. An event that comes
// again is stored once. It fails only when ctx ends.
func (w *Writer) park(ctx context.Context, r *row, kind, reason string) error {
	if r.event.IsTransfer() { // the next load of the lot goes by what Redis and its peers count
		w.cfg.Logger.LogAttrs(ctx, slog.LevelError, "a debit or credit of units was not written", slog.String("id", r.event.ID),
			slog.String("lot_id", r.event.LotID()), slog.String("reason", reason))
		return nil
	}
	parked := parkedEvent(r, reason)
	w.steps.At("park")
	err := sqlstore.RetryForever(ctx, w.noticeRetry, func() error {
		ctx, cancel := context.WithTimeout(ctx, w.flushTimeout)
		defer cancel()
		return insertParked(ctx, w.db, &parked, w.clock.Now())
	})
	if err != nil {
		return err
	}
	w.steps.At("parked")
	w.metrics.parked.WithLabelValues(kind).Inc()
	w.cfg.Logger.LogAttrs(ctx, slog.LevelError, "event parked: its claim is not in MySQL until `dibs reconcile --repair` writes it",
		slog.String("id", parked.ID), slog.String("campaign_id", parked.CampaignID), slog.String("kind", kind),
		slog.String("reason", parked.Reason))
	return nil
}

func insertParked(ctx context.Context, db *gorm.DB, parked *models.ParkedEvent, at time.Time) error {
	query := "INSERT INTO parked_events (id, campaign_id, user_id, reason, payload, parked_at) VALUES (?, ?, ?, ?, ?, ?) "
	if db.Name() == migrations.SQLite {
		query += "ON CONFLICT (id) DO NOTHING"
	} else {
		query += "ON DUPLICATE KEY UPDATE id = id"
	}
	_, err := db.ConnPool.ExecContext(ctx, query, parked.ID, parked.CampaignID, parked.UserID, parked.Reason, parked.Payload,
		at.UTC().Format(sqlstore.TimeLayout))
	if err != nil {
		return fmt.Errorf("writer: park: %w", err)
	}
	return nil
}

// parkedEvent makes a row that any event fits into, whatever is wrong with it.
func parkedEvent(r *row, reason string) models.ParkedEvent {
	id := r.event.ID
	if !sqlstore.IsPlain(id) || id == "" || len(id) > models.CampaignIDLength {
		sum := sha256.Sum256(r.payload)
		id = hex.EncodeToString(sum[:])
	}
	payload := r.payload
	if len(payload) > parkedPayloadMax {
		reason = fmt.Sprintf("(payload cut at %d of %d bytes) %s", parkedPayloadMax, len(payload), reason)
		payload = payload[:parkedPayloadMax]
	}
	if payload == nil {
		payload = []byte{}
	}
	return models.ParkedEvent{
		ID: id, CampaignID: sqlstore.Cut(r.event.LotID(), models.CampaignIDLength),
		UserID: sqlstore.Cut(r.event.UserID, models.UserIDLength),
		Reason: sqlstore.Cut(reason, models.ReasonLength), Payload: payload,
	}
}
