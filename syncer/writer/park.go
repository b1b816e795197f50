package writer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"

	"dibs/internal/sqlstore"
	"dibs/migrations"
	"dibs/models"
)

// Why events are parked, as the label of a metric.
const (
	parkedData            = "data"             // the database refuses the row
	parkedID              = "id_taken"         // a different claim has its id
	parkedSeqTaken        = "place_taken"      // a different claim has its place in the campaign
	parkedUnknownCampaign = "unknown_campaign" // there is no such campaign
	parkedPacket          = "packet_taken"     // its packet is another's, or is none
)

const (
	parkedPayloadLength = 1 << 20 // bytes
)

// park keeps an event that can never be written, with its payload, and says so in the log and in a metric. The same event
// may come again: it is kept once. It fails only when ctx ends.
func (w *Writer) park(ctx context.Context, r *row, kind, reason string) error {
	parked := parkedEvent(r, reason)
	query := "INSERT INTO parked_events (id, campaign_id, reason, payload, parked_at) VALUES (?, ?, ?, ?, ?) "
	if w.dialect == migrations.SQLite {
		query += "ON CONFLICT (id) DO NOTHING"
	} else {
		query += "ON DUPLICATE KEY UPDATE id = id"
	}
	w.step("park")
	err := sqlstore.RetryForever(ctx, w.noticeRetry, func() error {
		ctx, cancel := context.WithTimeout(ctx, w.cfg.FlushTimeout)
		defer cancel()
		_, err := w.db.ExecContext(ctx, query, parked.ID, parked.CampaignID, parked.Reason, parked.Payload,
			w.cfg.Clock.Now().UTC().Format(sqlstore.TimeLayout))
		if err != nil {
			return fmt.Errorf("syncer: park: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.step("parked")
	w.metrics.parked.WithLabelValues(kind).Inc()
	w.log.LogAttrs(ctx, slog.LevelError, "event parked: it is missing from the books", slog.String("id", parked.ID),
		slog.String("campaign_id", parked.CampaignID), slog.String("kind", kind), slog.String("reason", parked.Reason))
	return nil
}

// parkedEvent makes a row that any event fits into, however broken it is.
func parkedEvent(r *row, reason string) models.ParkedEvent {
	id := r.event.ID
	if !sqlstore.IsPlain(id) || id == "" || len(id) > models.CampaignIDLength {
		sum := sha256.Sum256(r.payload)
		id = hex.EncodeToString(sum[:])
	}
	payload := r.payload
	if len(payload) > parkedPayloadLength {
		reason = fmt.Sprintf("(payload cut at %d of %d bytes) %s", parkedPayloadLength, len(payload), reason)
		payload = payload[:parkedPayloadLength]
	}
	if payload == nil {
		payload = []byte{}
	}
	return models.ParkedEvent{
		ID: id, CampaignID: sqlstore.Cut(r.event.CampaignID, models.CampaignIDLength), Reason: sqlstore.Cut(reason, models.ReasonLength), Payload: payload,
	}
}
