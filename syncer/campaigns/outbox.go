package campaigns

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"

	"github.com/google/uuid"
)

const insertOutboxHead = "INSERT INTO outbox (id, campaign_id, kind, claim_id, payload, created_at) VALUES "

// OutboxAtOnce is the most rows of one statement.
const OutboxAtOnce = 500

// NewOutboxRow makes the row that publishes an event. The event gets its version here and, unless it has them, its id and its time.
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
	row := models.OutboxRow{ID: e.ID, CampaignID: e.LotID(), Kind: kind, Payload: payload, CreatedAt: sqlstore.Now(), Event: e}
	if e.ClaimID != "" {
		row.ClaimID = &e.ClaimID
	}
	return row, nil
}

// PutOutbox inserts rows in the transaction that causes them. The caller then calls resolve.Relay.Apply after the commit, so that
// Redis has them at once; the leader's relay applies what is left behind when the caller dies before.
func PutOutbox(ctx context.Context, tx sqlstore.Execer, rows []models.OutboxRow) error {
	for len(rows) > 0 {
		part := rows[:min(len(rows), OutboxAtOnce)]
		rows = rows[len(part):]
		args := make([]any, 0, 6*len(part))
		for i := range part {
			r := &part[i]
			args = append(args, r.ID, r.CampaignID, string(r.Kind), r.ClaimID, r.Payload, r.CreatedAt.UTC().Format(sqlstore.TimeLayout))
		}
		query := insertOutboxHead + strings.Repeat("(?, ?, ?, ?, ?, ?),", len(part))
		if _, err := tx.ExecContext(ctx, query[:len(query)-1], args...); err != nil {
			return fmt.Errorf("campaigns: outbox: %w", err)
		}
	}
	return nil
}
