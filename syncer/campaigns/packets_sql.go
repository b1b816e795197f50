package campaigns

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

const (
	insertPacketsHead = "INSERT INTO packets (campaign_id, id, position, shard, amount, release_at, created_at) VALUES "
	// idsPerLookup bounds the ids of a list in a statement.
	idsPerLookup = 500
)

// commit inserts a batch after the campaign's packets. Each flush
// updates the campaign's row, so that row is locked last and briefly.
// Two batches may then try the same positions. The second finds another
// total, or a duplicate position.
func (b *packetBatch) commit(ctx context.Context, db *gorm.DB, total int64) error {
	at := sqlstore.Now()
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := b.insertRows(ctx, tx, at); err != nil {
			return err
		}
		if err := b.insertBatch(tx, at); err != nil {
			return err
		}
		newest := versionAfter(0)
		if err := b.deal(tx); err != nil { // shards before the campaign, in the writer's order
			return fmt.Errorf("campaigns: %w", err)
		}
		n, err := sqlstore.Exec(ctx, tx, "UPDATE lots SET updated_at = ?, total = total + ?, untold = "+untold+
			" WHERE campaign_id = ? AND shard = 0 AND total = ?",
			at.Format(sqlstore.TimeLayout), b.count(), b.shards, b.campaignID, total)
		if err == nil && n > 0 {
			// The campaign may cross its lines again. The version is
			// that of versionAfter.
			n, err = sqlstore.Exec(ctx, tx, "UPDATE definitions SET told_line = CASE WHEN"+
				" (SELECT remaining FROM lots WHERE lots.campaign_id = definitions.campaign_id AND shard = 0)"+
				" > low_stock_at THEN 0 ELSE told_line END,"+
				" version = CASE WHEN version < ? THEN ? ELSE version + 1 END, changes = changes + 1"+
				" WHERE campaign_id = ? AND kind = ? AND status <> ?",
				newest, newest, b.campaignID, models.KindPacket, models.StatusClosed)
		}
		switch {
		case err != nil:
			return fmt.Errorf("campaigns: %w", err)
		case n == 0:
			return errRaced
		}
		return b.audit(ctx, tx, total)
	})
}

func (b *packetBatch) deal(tx *gorm.DB) error {
	for shard := 1; shard <= b.shards && b.shards > 1; shard++ {
		packets := models.DealtTo(shard, b.shards, b.after+b.count()) - models.DealtTo(shard, b.shards, b.after)
		err := tx.Exec("UPDATE lots SET total = total + ?, untold = 1 WHERE campaign_id = ? AND shard = ?",
			packets, b.campaignID, shard).Error
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *packetBatch) insertBatch(tx *gorm.DB, at time.Time) error {
	row := models.PacketBatchRow{
		CampaignID: b.campaignID, FirstPosition: b.after + 1, Packets: b.count(), Amount: b.sum, ReleaseAt: b.release,
		RequestKey: b.requestKey, Digest: b.digest, CreatedAt: at,
	}
	if err := tx.Create(&row).Error; err != nil {
		return fmt.Errorf("packet_batches: %w", err)
	}
	return nil
}

func (b *packetBatch) insertRows(ctx context.Context, tx *gorm.DB, at time.Time) error {
	most := sqlstore.RowsPerInsert(tx)
	n := int(b.count())
	for from := 0; from < n; from += most {
		to := min(from+most, n)
		s := sqlstore.NewStatement(insertPacketsHead, (to-from)*sqlstore.RowBytes/2)
		for i := from; i < to; i++ {
			s.BeginRow(i - from)
			b.row(s, i)
			s.TimeOrNull(b.release)
			s.Time(at)
			s.EndRow()
		}
		if _, err := sqlstore.Exec(ctx, tx, s.SQL(), s.Args...); err != nil {
			return fmt.Errorf("packets: %w", err)
		}
	}
	return nil
}

func (b *packetBatch) row(s *sqlstore.Statement, i int) {
	position := b.after + int64(i) + 1
	packet := models.Packet{ID: models.SplitPacketID(position)}
	if b.list != nil {
		packet = b.list[i]
	} else {
		packet.Amount = b.amounts[i]
	}
	s.Text(b.campaignID)
	s.Text(packet.ID)
	s.Int(position)
	s.Int(int64(models.ShardOfPacket(position, b.shards)))
	s.Int(packet.Amount)
}

// releaseText is a time of release in SQL.
// Without one it is a time that no row has.
func releaseText(t *time.Time) string {
	if t == nil {
		return "1000-01-01 00:00:00.000"
	}
	return t.Format(sqlstore.TimeLayout)
}

// whyDuplicate explains a duplicate key: the batch exists, a packet's
// id is taken, or another batch took the positions. The batch is looked
// up last: the packets found before may be its own, just committed.
func (b *packetBatch) whyDuplicate(db *gorm.DB) (models.AddedPackets, error) {
	taken := -1
	for from := 0; from < len(b.list) && taken < 0; from += idsPerLookup {
		var err error
		taken, err = b.firstTaken(db, from, min(from+idsPerLookup, len(b.list)))
		if err != nil {
			return models.AddedPackets{}, err
		}
	}
	added, err := knownBatch(db, b)
	switch {
	case err != nil || added.Replayed:
		return added, err
	case taken >= 0:
		return added, refusal(models.PacketField(taken, "id"), "is that of a packet of the campaign already")
	}
	return added, fmt.Errorf("%w: its positions are taken", errRaced)
}

// firstTaken returns the index of the first
// packet of list[from:to] with a taken id, or -1.
func (b *packetBatch) firstTaken(db *gorm.DB, from, to int) (int, error) {
	ids := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		ids = append(ids, b.list[i].ID)
	}
	var taken []string
	err := db.Raw("SELECT id FROM packets WHERE campaign_id = ? AND id IN ?", b.campaignID, ids).Scan(&taken).Error
	if err != nil {
		return -1, err
	}
	for i, id := range ids {
		if slices.Contains(taken, id) {
			return from + i, nil
		}
	}
	return -1, nil
}
