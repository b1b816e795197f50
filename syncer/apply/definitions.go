package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"dibs/models"
	"dibs/syncer/tables"
)

// define restores campaigns and changes that the stream has and a
// restored MySQL lacks. Of two campaigns of an id the later counts: the
// deletion of the earlier may be in the stream of another shard, read later.
func (a *application) define() error {
	newest := make(map[string]*models.Definition)
	for _, e := range a.b.lots {
		d := e.Definition
		if d == nil || a.isDeleted(e.CampaignID, d.CreatedAt) {
			continue
		}
		d.CampaignID = e.CampaignID
		if d.Kind == models.KindPacket { // its packets add up to its total
			d.Total = 0
		}
		before := newest[d.CampaignID]
		keepDealt(before, d)
		if before == nil || compareDefinitions(before, d) < 0 {
			newest[d.CampaignID] = d
		}
	}
	known, err := a.definitionsOf(slices.Collect(maps.Keys(newest)))
	if err != nil {
		return err
	}
	for id, d := range newest {
		keepDealt(known[id], d)
		if err := a.defineOne(known[id], d); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// compareDefinitions orders definitions of an id by time.
func compareDefinitions(x, y *models.Definition) int {
	return cmp.Or(cmp.Compare(x.CreatedAt.UnixMilli(), y.CreatedAt.UnixMilli()), cmp.Compare(x.Version, y.Version))
}

// keepDealt completes definitions of one campaign: an older program does not
// write what its shards shared at first.
func keepDealt(x, y *models.Definition) {
	if x == nil || y == nil || x.CreatedAt.UnixMilli() != y.CreatedAt.UnixMilli() {
		return
	}
	x.Dealt = cmp.Or(x.Dealt, y.Dealt)
	y.Dealt = x.Dealt
}

func (a *application) defineOne(known, d *models.Definition) error {
	if known != nil && compareDefinitions(known, d) >= 0 {
		return nil
	}
	if known != nil && known.CreatedAt.UnixMilli() == d.CreatedAt.UnixMilli() {
		return tables.Redefine(a.tx, d)
	}
	if known != nil { // it was deleted, so it had no claims
		if isBlank, err := tables.DeleteBlank(a.tx, d.CampaignID); err != nil || !isBlank {
			return err
		}
	}
	_, err := tables.Define(a.tx, d, a.partitions)
	return err
}

func (a *application) definitionsOf(ids []string) (map[string]*models.Definition, error) {
	known := make(map[string]*models.Definition, len(ids))
	if len(ids) == 0 {
		return known, nil
	}
	var rows []*models.Definition
	err := a.tx.Select("campaign_id, version, created_at, dealt").Where("campaign_id IN ?", ids).Find(&rows).Error
	if err != nil {
		return nil, err
	}
	for _, d := range rows {
		known[d.CampaignID] = d
	}
	return known, nil
}
