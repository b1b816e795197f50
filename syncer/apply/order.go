package apply

import (
	"maps"
	"slices"

	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/adder"
)

// noteOrder records the lots in which the times of claims may not rise with
// seq: Redis came back older and gave seqs again. Such claims are written as
// a partition recovers, or were parked.
func (a *application) noteOrder() error {
	isRecovering := func(s adder.Taken) bool { return s.From.State == event.PartitionRecovering }
	if len(a.b.Streams) > 0 && !slices.ContainsFunc(a.b.Streams, isRecovering) {
		return nil
	}
	written := make(map[adder.Lot][]int64)
	for _, r := range a.written {
		lot := adder.LotOf(&r.Event)
		written[lot] = append(written[lot], r.Seq)
	}
	for _, lot := range slices.SortedFunc(maps.Keys(written), adder.Lot.Compare) {
		if err := a.noteOrderOf(lot, written[lot]); err != nil {
			return err
		}
	}
	return nil
}

func (a *application) noteOrderOf(lot adder.Lot, written []int64) error {
	among := a.tx.Model(&stored.ClaimRow{}).Where("campaign_id = ? AND shard = ?", lot.CampaignID, lot.Shard)
	switch {
	case a.isRecovering(lot): // these are later than all claims that had rows
		among = among.Where("seq >= ?", slices.Min(written))
	case len(a.b.Streams) == 0:
		among = among.Where("seq IN ?", written)
	default:
		return nil
	}
	var all int64
	if err := among.Count(&all).Error; err != nil || all == int64(len(written)) {
		return err
	}
	return a.tx.Exec("UPDATE lots SET unordered_upto = (SELECT MAX(seq) FROM claims WHERE claims.campaign_id = ? AND claims.shard = ?)"+
		" WHERE campaign_id = ? AND shard = ?", lot.CampaignID, lot.Shard, lot.CampaignID, lot.Shard).Error
}
