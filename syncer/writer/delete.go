package writer

import (
	"time"

	"dibs/models"
	"dibs/syncer/tables"
)

// deleteForgotten deletes campaigns whose deletion a restored MySQL has lost.
// It comes first, as the batch may have a later campaign of the same id.
func (a *application) deleteForgotten() error {
	a.deleted = make(map[string]models.Time)
	for _, e := range a.b.events {
		_, isKnown := a.inOutbox[e.ID]
		if e.Type != models.EventCampaignDeleted || isKnown {
			continue
		}
		a.deleted[e.CampaignID] = e.At
		var earlier int64
		err := a.tx.Model(&models.Definition{}).Where("campaign_id = ? AND created_at <= ?", e.CampaignID, e.At.Time).
			Count(&earlier).Error
		if err == nil && earlier > 0 {
			_, err = tables.DeleteBlank(a.tx, e.CampaignID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *application) isDeleted(id string, at time.Time) bool {
	deleted, is := a.deleted[id]
	return is && !at.After(deleted.Time)
}
