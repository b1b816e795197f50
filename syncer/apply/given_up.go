package apply

import (
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/adder"
)

// giveUp applies what operators gave up. A restored MySQL may have lost it.
func (a *application) giveUp() error {
	for _, e := range a.b.events {
		if e.Type != event.ClaimsGivenUp || e.GivenUp == nil {
			continue
		}
		if len(e.IDs) > 0 {
			err := a.tx.Model(&stored.ParkedEvent{}).Where("discarded_at IS NULL AND id IN ?", e.IDs).
				Update("discarded_at", e.At.UTC()).Error
			if err != nil {
				return err
			}
		}
		if err := a.giveUpOf(adder.LotOf(&e.Event), e.GivenUp); err != nil {
			return err
		}
	}
	return nil
}

func (a *application) giveUpOf(lot adder.Lot, now *event.GivenUp) error {
	err := a.tx.Exec("UPDATE lots SET"+
		" lost_claims = "+a.greatest("0", "lost_claims + given_up_claims - ?")+
		", lost_units = "+a.greatest("0", "lost_units + given_up_units - ?")+
		", given_up_claims = ?, given_up_units = ?"+
		" WHERE campaign_id = ? AND shard = ? AND given_up_units < ?",
		now.Claims, now.Units, now.Claims, now.Units, lot.CampaignID, lot.Shard, now.Units).Error
	if err != nil || lot.Shard == 0 {
		return err
	}
	return a.sumLost(lot.CampaignID)
}
