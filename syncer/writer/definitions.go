package writer

import (
	"fmt"
	"maps"
	"slices"

	"dibs/models"
	"dibs/syncer/tables"
)

// define restores campaigns and changes that
// the stream has and a restored MySQL lacks.
func (a *application) define() error {
	newest := make(map[string]*models.Definition)
	for _, e := range a.ofLots {
		d := e.Definition
		if d == nil || a.isDeleted(e.CampaignID, d.CreatedAt) {
			continue
		}
		d.CampaignID = e.CampaignID
		if d.Kind == models.KindPacket { // its packets add up to its total
			d.Total = 0
		}
		if before := newest[d.CampaignID]; before == nil || before.Version < d.Version {
			newest[d.CampaignID] = d
		}
	}
	versions, err := a.versionsOf(slices.Collect(maps.Keys(newest)))
	if err != nil {
		return err
	}
	for id, d := range newest {
		var err error
		switch version := versions[id]; {
		case version == 0:
			_, err = tables.Define(a.tx, d, a.partitions)
		case version < d.Version:
			err = tables.Redefine(a.tx, d)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

func (a *application) versionsOf(ids []string) (map[string]int64, error) {
	versions := make(map[string]int64, len(ids))
	if len(ids) == 0 {
		return versions, nil
	}
	var known []models.Definition
	err := a.tx.Select("campaign_id, version").Where("campaign_id IN ?", ids).Find(&known).Error
	for i := range known {
		versions[known[i].CampaignID] = known[i].Version
	}
	return versions, err
}
