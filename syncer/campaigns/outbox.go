package campaigns

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

const insertOutboxHead = "INSERT INTO outbox (id, campaign_id, kind, claim_id, payload, created_at) VALUES "

// OutboxAtOnce is the most rows of a statement.
const OutboxAtOnce = 500

// NewOutboxRow returns the row of an event. It sets the event's version and, if missing,
// its id and time.
func NewOutboxRow(kind models.OutboxKind, e *models.Event) (models.OutboxRow, error) {
	e.V = models.EventVersion
	if e.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return models.OutboxRow{}, fmt.Errorf("campaigns: outbox: %w", err)
		}
		e.ID = id.String()
	}
	if e.At.IsZero() {
		e.At = models.NewTime(sqlstore.Now())
	}
	payload, err := json.Marshal(e)
	if err != nil {
		return models.OutboxRow{}, fmt.Errorf("campaigns: outbox: %w", err)
	}
	now := sqlstore.Now()
	row := models.OutboxRow{ID: e.ID, CampaignID: e.LotID(), Kind: kind, Payload: payload, CreatedAt: now, Event: e}
	if e.ClaimID != "" {
		row.ClaimID = &e.ClaimID
	}
	return row, nil
}

// PutOutbox inserts rows in the transaction that causes them. After the commit the caller
// delivers them by resolve.Relay.Apply. If it dies before, the leader's relay does.
func PutOutbox(ctx context.Context, tx *gorm.DB, rows []models.OutboxRow) error {
	for len(rows) > 0 {
		part := rows[:min(len(rows), OutboxAtOnce)]
		rows = rows[len(part):]
		args := make([]any, 0, 6*len(part))
		for i := range part {
			r := &part[i]
			created := r.CreatedAt.UTC().Format(sqlstore.TimeLayout)
			args = append(args, r.ID, r.CampaignID, string(r.Kind), r.ClaimID, r.Payload, created)
		}
		query := insertOutboxHead + strings.Repeat("(?, ?, ?, ?, ?, ?),", len(part))
		if _, err := sqlstore.Exec(ctx, tx, query[:len(query)-1], args...); err != nil {
			return fmt.Errorf("campaigns: outbox: %w", err)
		}
	}
	return nil
}
