package apply

import (
	"fmt"

	"dibs/models/event"
	"dibs/models/stored"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// addPackets restores packets that the stream has and a restored MySQL lacks.
func (a *application) addPackets() error {
	a.added = make(map[*event.Raw]int64)
	for _, e := range a.ofLots {
		if e.Type != event.PacketsPushed || len(e.Pushed.Packets) == 0 || a.isDeleted(e.CampaignID, e.At.Time) {
			continue
		}
		of := e.Pushed
		var known int64
		err := a.tx.Model(&stored.PacketRow{}).Where("campaign_id = ? AND shard = ? AND position BETWEEN ? AND ?",
			e.CampaignID, e.Shard, of.Packets[0].Position, of.Upto).Count(&known).Error
		if err != nil {
			return err
		}
		if known == int64(len(of.Packets)) {
			continue
		}
		added, err := insertPackets(a.tx, e)
		if err != nil {
			return fmt.Errorf("%s: %w", e.LotID(), err)
		}
		a.added[e] = added
	}
	return nil
}

func insertPackets(db *gorm.DB, e *event.Raw) (added int64, err error) {
	batch := e.Pushed.Batch
	batch.CampaignID = e.CampaignID
	unlessKnown := clause.OnConflict{DoNothing: true}
	if err := db.Clauses(unlessKnown).Create(&batch).Error; err != nil {
		return 0, err
	}
	rows := make([]stored.PacketRow, len(e.Pushed.Packets))
	for i, p := range e.Pushed.Packets {
		rows[i] = stored.PacketRow{
			CampaignID: e.CampaignID, ID: p.ID, Position: p.Position, Shard: e.Shard, Amount: p.Amount,
			ReleaseAt: batch.ReleaseAt, CreatedAt: batch.CreatedAt,
		}
	}
	put := db.Clauses(unlessKnown).Create(&rows)
	return put.RowsAffected, put.Error
}

// countPackets records which packets the stream has, and counts restored
// ones.
func (a *application) countPackets(e *event.Raw) error {
	query := "UPDATE lots SET told_position = " + a.greatest("told_position", "?") + ", total = total + ? WHERE id = ?"
	err := a.tx.Exec(query, e.Pushed.Upto, a.added[e], e.LotID()).Error
	if err != nil || e.Shard == 0 || a.added[e] == 0 {
		return err
	}
	return a.tx.Exec("UPDATE lots SET total = total + ? WHERE campaign_id = ? AND shard = 0", a.added[e], e.CampaignID).Error
}
