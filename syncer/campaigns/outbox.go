package campaigns

import (
	"context"
	"encoding/json"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// OutboxAtOnce is the most rows of a statement.
const OutboxAtOnce = 500

// NewOutboxRow returns the row of an event. It sets the event's version
// and, if missing, its id and time.
func NewOutboxRow(kind stored.OutboxKind, e *event.Event) (stored.OutboxRow, error) {
	e.V = event.Version
	if e.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return stored.OutboxRow{}, fmt.Errorf("campaigns: outbox: %w", err)
		}
		e.ID = id.String()
	}
	if e.At.IsZero() {
		e.At = models.NewTime(sqlstore.Now())
	}
	payload, err := json.Marshal(e)
	if err != nil {
		return stored.OutboxRow{}, fmt.Errorf("campaigns: outbox: %w", err)
	}
	now := sqlstore.Now()
	row := stored.OutboxRow{ID: e.ID, LotID: e.LotID(), Kind: kind, Payload: payload, CreatedAt: now, Event: e}
	if e.ClaimID != "" {
		row.ClaimID = &e.ClaimID
	}
	return row, nil
}

// PutOutbox inserts rows in the transaction that causes them. After the
// commit the caller delivers them by resolve.Relay.Apply. If it dies
// before, the leader's relay does.
func PutOutbox(ctx context.Context, tx *gorm.DB, rows []stored.OutboxRow) error {
	if len(rows) == 0 {
		return nil
	}
	if err := tx.WithContext(ctx).CreateInBatches(rows, OutboxAtOnce).Error; err != nil {
		return fmt.Errorf("campaigns: outbox: %w", err)
	}
	return nil
}
