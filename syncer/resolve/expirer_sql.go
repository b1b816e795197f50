package resolve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/stored"

	"gorm.io/gorm"
)

type heldLot struct {
	stored.HoldCursor `gorm:"embedded"`

	HoldForMs int64
}

func (l *heldLot) id() string { return models.ShardID(l.CampaignID, l.Shard) }

const dueHolds = "SELECT campaign_id, shard, seq, due_ms," +
	" (SELECT hold_for_ms FROM definitions d WHERE d.campaign_id = h.campaign_id) AS hold_for_ms" +
	" FROM hold_cursors h WHERE due_ms <= ? AND (SELECT partition_no FROM lots l" +
	" WHERE l.campaign_id = h.campaign_id AND l.shard = h.shard) NOT IN ? ORDER BY due_ms LIMIT ?"

func (e *Expirer) due(ctx context.Context, now time.Time) (lots []heldLot, err error) {
	err = e.relay.db.WithContext(ctx).Raw(dueHolds, now.UnixMilli(), append(e.away, -1), e.lots).Scan(&lots).Error
	if err != nil {
		return nil, fmt.Errorf("resolve: due holds: %w", err)
	}
	return lots, nil
}

// dues returns due single holds, also those of claims that were archived or
// dropped.
func (e *Expirer) dues(ctx context.Context, now time.Time) (dues []stored.HoldDue, err error) {
	err = e.relay.db.WithContext(ctx).Table("hold_dues").Select("claim_id", "due_ms").
		Where("due_ms <= ? AND NOT EXISTS (SELECT 1 FROM claims c JOIN lots l ON l.campaign_id = c.campaign_id AND l.shard = c.shard"+
			" WHERE c.id = hold_dues.claim_id AND l.partition_no IN ?)", now.UnixMilli(), append(e.away, -1)).
		Order("due_ms").Limit(e.batchSize).Find(&dues).Error
	return dues, err
}

func lock(tx *gorm.DB, lots []heldLot) error {
	at := make(map[string]*heldLot, len(lots))
	args := make([]any, 0, 2*len(lots))
	for i := range lots {
		at[lots[i].id()] = &lots[i]
		args = append(args, lots[i].CampaignID, lots[i].Shard)
	}
	query := "SELECT campaign_id, shard, seq FROM hold_cursors" + sqlstore.ByKey(tx) + " WHERE " +
		strings.TrimPrefix(strings.Repeat("OR (campaign_id = ? AND shard = ?) ", len(lots)), "OR ") + sqlstore.ForUpdate(tx)
	var locked []heldLot
	err := tx.Raw(query, args...).Scan(&locked).Error
	if err != nil {
		return err
	}
	for i := range locked {
		if l := at[locked[i].id()]; l != nil {
			l.Seq = locked[i].Seq
		}
	}
	return nil
}

const walkColumns = "id, campaign_id, shard, seq, user_id, quantity, status, key_digest, subjects," +
	" packet_id, claimed_at, decisions, reopened_at, held_until"

// walk scans up to share claims of each lot, moves the locked cursors,
// and returns claims whose hold has ended. Reopened and extended ones
// have or had a row of hold_dues instead.
func walk(tx *gorm.DB, lots []heldLot, share int, now time.Time) (ended []heldClaim, err error) {
	at := make(map[string]*heldLot, len(lots))
	seen := make(map[string]int, len(lots))
	for i := range lots {
		lots[i].DueMs = nil
		at[lots[i].id()] = &lots[i]
	}
	query, args := walkQuery(tx, lots, share)
	var claims []heldClaim
	err = tx.Raw(query, args...).Scan(&claims).Error
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		l := at[c.LotID()]
		if l.DueMs != nil {
			continue
		}
		due := c.ClaimedAt.UnixMilli() + l.HoldForMs
		if due > now.UnixMilli() || seen[l.id()] == share {
			l.DueMs = &due
			continue
		}
		seen[l.id()]++
		l.Seq = c.Seq
		if c.Status == models.ClaimClaimed && c.PacketID == nil && c.ReopenedAt == nil && c.HeldUntil == nil {
			ended = append(ended, c)
		}
	}
	return ended, nil
}

// walkQuery reads one claim more than share of each lot, without those that
// have a row of hold_dues. After a loss in Redis a claim may have the seq of
// an earlier one, and a longer hold than those behind it: it has such a row.
func walkQuery(db *gorm.DB, lots []heldLot, share int) (query string, args []any) {
	parts := make([]string, len(lots))
	for i := range lots {
		l := &lots[i]
		parts[i] = fmt.Sprintf("SELECT "+walkColumns+" FROM (SELECT "+walkColumns+" FROM claims"+
			sqlstore.ByIndex(db, "claims_place")+
			" WHERE campaign_id = ? AND shard = ? AND seq > ?"+
			" AND NOT EXISTS (SELECT 1 FROM hold_dues d WHERE d.claim_id = claims.id) ORDER BY seq, id LIMIT ?) AS c%d", i)
		args = append(args, l.CampaignID, l.Shard, l.Seq, share+1)
	}
	return strings.Join(parts, " UNION ALL ") + " ORDER BY campaign_id, shard, seq, id", args
}

func move(tx *gorm.DB, lots []heldLot) error {
	cursors := make([]stored.HoldCursor, len(lots))
	for i := range lots {
		cursors[i] = lots[i].HoldCursor
	}
	return tx.Save(&cursors).Error
}
