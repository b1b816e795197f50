package apply

import (
	"maps"
	"slices"
	"time"

	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/tables"
)

// deleteForgotten deletes campaigns whose deletion a restored MySQL has lost.
// It comes first, as the batch may have a later campaign of the same id.
func (a *application) deleteForgotten() error {
	a.deleted = make(map[string]models.Time)
	for _, e := range a.b.events {
		_, isKnown := a.inOutbox[e.ID]
		if e.Type != event.CampaignDeleted || isKnown {
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

// dropEarlier leaves out events of deleted campaigns whose ids later ones
// have. A restored MySQL may know the later one from another stream.
func (a *application) dropEarlier() error {
	var made []*event.Raw
	for _, e := range a.b.lots {
		if madeMs(e) > 0 {
			made = append(made, e)
		}
	}
	for _, r := range a.b.Rows {
		if r.IsMove() && r.MadeMs > 0 {
			made = append(made, r)
		}
	}
	ids := make(map[string]bool)
	for _, e := range made {
		ids[e.CampaignID] = true
	}
	known, err := a.definitionsOf(slices.Collect(maps.Keys(ids)))
	if err != nil {
		return err
	}
	a.earlier = make(map[*event.Raw]bool)
	for _, e := range made {
		k := known[e.CampaignID]
		if k != nil && madeMs(e) < k.CreatedAt.UnixMilli() {
			a.earlier[e] = true
		}
	}
	a.ofLots = slices.DeleteFunc(slices.Clone(a.b.lots), func(e *event.Raw) bool { return a.earlier[e] })
	return nil
}

func madeMs(e *event.Raw) int64 {
	if e.Definition != nil {
		return e.Definition.CreatedAt.UnixMilli()
	}
	return e.MadeMs
}

func (a *application) isDeleted(id string, at time.Time) bool {
	deleted, is := a.deleted[id]
	return is && !at.After(deleted.Time)
}
