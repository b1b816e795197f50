package tables

import "gorm.io/gorm"

// Blank selects lots, called lot, that have no claims and never had any.
const Blank = "lot.synced_seq = 0 AND lot.sold = 0 AND lot.claimed = 0 AND lot.seen_units = 0 AND lot.seen_seq = 0" +
	" AND lot.lost_claims = 0 AND lot.given_up_claims = 0 AND lot.released_claims = 0 AND lot.archived_claims = 0" +
	" AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.campaign_id = lot.campaign_id AND claims.shard = lot.shard)" +
	" AND NOT EXISTS (SELECT 1 FROM parked_events WHERE parked_events.campaign_id = lot.id)"

// DeleteBlank deletes a campaign without claims, and its packets.
// isBlank is false if it has or had claims; then nothing is deleted.
func DeleteBlank(tx *gorm.DB, id string) (isBlank bool, err error) {
	var claimed int64
	err = tx.Table("lots AS lot").Where("campaign_id = ? AND NOT ("+Blank+")", id).Count(&claimed).Error
	if err != nil || claimed > 0 {
		return false, err
	}
	for _, table := range []string{"packets", "packet_batches", "hold_cursors", "stock_moves", "lots", "definitions"} {
		if err := tx.Exec("DELETE FROM "+table+" WHERE campaign_id = ?", id).Error; err != nil {
			return false, err
		}
	}
	// or a later campaign of the id would get them
	return true, tx.Exec("UPDATE stock_flushes SET waiting = NULL WHERE waiting = 1 AND campaign_id = ?", id).Error
}
