package tables

import "gorm.io/gorm"

// OfLots selects the rows of a table that are of a campaign or of its
// shards: their campaign_id is a lot's id.
func OfLots(db *gorm.DB, campaignID string) *gorm.DB {
	return db.Where("campaign_id = ? OR campaign_id IN (SELECT id FROM lots WHERE lots.campaign_id = ?)", campaignID, campaignID)
}
