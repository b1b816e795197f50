package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// bringMovesBack has a shard have on loan what it had before MySQL was put back behind some of its moves. Else units that it got by a grant
// that is forgotten, and sold, would be in the reserve as well, and be sold again. What it has not sold follows when Redis is rebuilt.
func (p *repair) bringMovesBack(ctx context.Context) error {
	campaignID, shard := models.SplitShardID(p.id)
	if shard == 0 {
		return nil
	}
	return p.change(ctx, func(tx *sql.Tx, was *models.Campaign) (*models.Repair, error) {
		if was.Kind == models.KindPacket {
			return p.dealToOwners(ctx, tx, campaignID, shard)
		}
		state := &p.redis.state
		forgotten := state.Moves > was.MoveNo || strings.HasPrefix(was.ResidencyReason, campaigns.MySQLWentBack)
		more := state.Total - was.Total
		if !p.redis.held || !p.redis.settled || !forgotten || state.Moves < was.MoveNo || more == 0 {
			return nil, nil
		}
		n, err := sqlstore.Exec(ctx, tx, "UPDATE campaigns SET reserve = reserve - ? WHERE id = ? AND reserve >= ?", more, campaignID, more)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, fmt.Errorf("reconcile: %s got %d units by moves that mysql forgot, and the reserve has not so many: repair the other"+
				" shards of %s, which gave them back", p.id, more, campaignID)
		}
		_, err = tx.ExecContext(ctx, "UPDATE campaign_shards SET total = total + ?, granted = granted + ?, remaining = CASE"+
			" WHEN remaining + ? > 0 THEN remaining + ? ELSE 0 END WHERE id = ?", more, more, more, more, p.id)
		if err != nil {
			return nil, err
		}
		return repairOf(p.id, RepairCampaigns, fmt.Sprintf("%d units on loan", was.Total), fmt.Sprintf("%d, by redis", state.Total))
	})
}

// dealToOwners deals packets to a shard that claims of it have. Packets that it has not given away stay where their rows are.
func (p *repair) dealToOwners(ctx context.Context, tx *sql.Tx, campaignID string, shard int) (*models.Repair, error) {
	n, err := sqlstore.Exec(ctx, tx, "UPDATE packets SET shard = ?, move_no = 0 WHERE campaign_id = ? AND shard <> ?"+
		" AND claim_id IN (SELECT id FROM claims WHERE campaign_id = ? AND shard = ?)", shard, campaignID, shard, campaignID, shard)
	if err != nil || n == 0 {
		return nil, err
	}
	const dealt = "(SELECT COUNT(*) FROM packets p WHERE p.campaign_id = campaign_shards.campaign_id AND p.shard = campaign_shards.shard)"
	for _, statement := range []string{
		"UPDATE campaign_shards SET total = " + dealt + ", granted = " + dealt + " WHERE campaign_id = ?",
		"UPDATE campaign_shards SET remaining = CASE WHEN total > claimed THEN total - claimed ELSE 0 END WHERE campaign_id = ?",
		"UPDATE campaigns SET reserve = (SELECT COUNT(*) FROM packets p WHERE p.campaign_id = campaigns.id AND p.shard = 0) WHERE id = ?",
	} {
		if _, err := tx.ExecContext(ctx, statement, campaignID); err != nil {
			return nil, err
		}
	}
	return repairOf(p.id, RepairPackets, fmt.Sprintf("%d packets of its claims were not dealt to it", n), "they are")
}
