package apply

import (
	"dibs/internal/audit"
	"dibs/internal/caller"
	"dibs/models"
	"dibs/models/event"
)

// pause applies an operator's pause that was made in Redis while MySQL
// was away. Each shard reports it; the first report counts. Definitions
// made later may reopen it.
func (a *application) pause(e *event.Raw) error {
	at := e.At.UnixMilli()
	paused := a.tx.Exec("UPDATE definitions SET status = ?, pause_id = ?,"+
		" version = CASE WHEN version < ? THEN ? ELSE version + 1 END, changes = changes + 1"+
		" WHERE campaign_id = ? AND status <> ? AND (pause_id IS NULL OR pause_id < ?)",
		models.StatusPaused, e.PauseID, at, at, e.CampaignID, models.StatusClosed, e.PauseID)
	if paused.Error != nil || paused.RowsAffected == 0 {
		return paused.Error
	}
	err := a.tx.Exec("UPDATE lots SET untold = 1 WHERE campaign_id = ?"+
		" AND (shard > 0 OR 1 = (SELECT shards FROM definitions d WHERE d.campaign_id = lots.campaign_id))", e.CampaignID).Error
	if err != nil {
		return err
	}
	ctx := caller.With(a.ctx, &caller.Caller{Actor: e.Actor, RequestID: e.RequestID})
	change := map[string]string{"status": string(models.StatusPaused)}
	return audit.Put(ctx, a.tx, models.AuditCampaignPaused, e.CampaignID, nil, change)
}
