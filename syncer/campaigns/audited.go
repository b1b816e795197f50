package campaigns

import (
	"context"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/models"
)

// audited is a definition as audit_log has it, in the words of the API.
type audited struct {
	Kind          models.Kind   `json:"kind"`
	Name          string        `json:"name,omitempty"`
	Status        models.Status `json:"status"`
	Total         int64         `json:"total"`
	PerUser       int64         `json:"per_user"`
	PerUserPerDay int64         `json:"per_user_per_day"`
	TimeZone      string        `json:"time_zone"`
	StartsAt      *models.Time  `json:"starts_at,omitempty"`
	EndsAt        *models.Time  `json:"ends_at,omitempty"`
	LowStockAt    int64         `json:"low_stock_at"`
	Currency      string        `json:"currency,omitempty"`
	SenderID      string        `json:"sender_id,omitempty"`
	HoldFor       string        `json:"hold_for,omitempty"`
	Version       int64         `json:"version"`
}

func auditedOf(c *models.Campaign) audited {
	a := audited{
		Kind: c.Kind, Name: c.Name, Status: c.Status, Total: c.Total, PerUser: c.PerUser, PerUserPerDay: c.PerUserPerDay,
		TimeZone: c.TimeZone, LowStockAt: c.LowStockAt, Currency: c.Currency, SenderID: c.SenderID, Version: c.Changes,
	}
	if c.StartsAt != nil {
		a.StartsAt = new(models.NewTime(*c.StartsAt))
	}
	if c.EndsAt != nil {
		a.EndsAt = new(models.NewTime(*c.EndsAt))
	}
	if c.HoldForMs > 0 {
		a.HoldFor = c.HoldFor().String()
	}
	return a
}

// auditCreated writes, in the transaction that creates a campaign, who created what.
func auditCreated(ctx context.Context, tx sqlstore.Execer, c *models.Campaign) error {
	return audit.Put(ctx, tx, models.AuditCampaignCreated, c.ID, nil, auditedOf(c))
}

// auditChanged writes, in the transaction that changes a campaign, who changed what.
func auditChanged(ctx context.Context, tx sqlstore.Execer, before, after *models.Campaign) error {
	was, is, err := audit.Differences(auditedOf(before), auditedOf(after))
	if err != nil {
		return err
	}
	action := models.AuditCampaignChanged
	if after.Status == models.StatusClosed && before.Status != models.StatusClosed {
		action = models.AuditCampaignClosed
	}
	return audit.Put(ctx, tx, action, after.ID, was, is)
}

// packetsAdded is a batch of packets as audit_log has it.
type packetsAdded struct {
	Total     int64        `json:"total"` // packets of the campaign
	Count     int64        `json:"count"`
	Amount    int64        `json:"amount"` // minor units
	ReleaseAt *models.Time `json:"release_at,omitempty"`
}

func (b *packetBatch) audit(ctx context.Context, tx sqlstore.Execer, total int64) error {
	added := packetsAdded{Total: total + b.count(), Count: b.count(), Amount: b.sum}
	if b.release != nil {
		added.ReleaseAt = new(models.NewTime(*b.release))
	}
	return audit.Put(ctx, tx, models.AuditPacketsAdded, b.campaignID, map[string]int64{"total": total}, added)
}
