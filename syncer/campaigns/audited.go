package campaigns

import (
	"context"

	"dibs/internal/audit"
	"dibs/models"

	"gorm.io/gorm"
)

// auditChanged records a change and its
// author, in the transaction of the change.
func auditChanged(ctx context.Context, tx *gorm.DB, before, after *models.Campaign) error {
	was, is, err := audit.Differences(before.DefinitionJSON(), after.DefinitionJSON())
	if err != nil {
		return err
	}
	action := models.AuditCampaignChanged
	if after.Status == models.StatusClosed && before.Status != models.StatusClosed {
		action = models.AuditCampaignClosed
	}
	return audit.Put(ctx, tx, action, after.ID, was, is)
}

type packetsAdded struct {
	Total     int64        `json:"total"` // packets of the campaign
	Count     int64        `json:"count"`
	Amount    int64        `json:"amount"` // minor units
	ReleaseAt *models.Time `json:"release_at,omitempty"`
}

func (b *packetBatch) audit(ctx context.Context, tx *gorm.DB, total int64) error {
	added := packetsAdded{Total: total + b.count(), Count: b.count(), Amount: b.sum}
	if b.release != nil {
		added.ReleaseAt = new(models.NewTime(*b.release))
	}
	return audit.Put(ctx, tx, models.AuditPacketsAdded, b.campaignID, map[string]int64{"total": total}, added)
}
