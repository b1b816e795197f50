package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// bringMovesBack restores what a shard has on loan where MySQL was restored to a time before some of its moves: what Redis says, and never
// less than it has sold. Else units of a forgotten grant that were sold would be sold again from the reserve. What the shard has not sold
// follows when Redis is rebuilt. A reserve below 0 is the number of units that were sold twice.
func (p *repair) bringMovesBack(ctx context.Context) error {
	campaignID, shard := models.SplitShardID(p.id)
	if shard == 0 {
		return nil
	}
	return p.change(ctx, func(tx *sql.Tx, was *models.Campaign) (*models.Repair, error) {
		if was.Kind == models.KindPacket {
			return p.dealToOwners(ctx, tx, campaignID, shard)
		}
		sold, reserve, err := soldAndReserve(ctx, tx, was, campaignID)
		if err != nil {
			return nil, err
		}
		state := &p.redis.state
		forgotten := state.Moves > was.MoveNo || strings.HasPrefix(was.ResidencyReason, campaigns.MySQLRolledBack)
		total := was.Total
		if p.redis.held && (p.redis.settled || p.stopped) && forgotten && state.Moves >= was.MoveNo {
			total = min(state.Total, was.Total+max(0, reserve))
		}
		more := max(total, sold) - was.Total
		if more == 0 {
			return nil, nil
		}
		_, err = tx.ExecContext(ctx, "UPDATE lots SET total = total - ? WHERE id = ?", more, campaignID)
		if err != nil {
			return nil, err
		}
		_, err = tx.ExecContext(ctx, "UPDATE lots SET total = total + ? WHERE id = ?", more, p.id)
		if err != nil {
			return nil, err
		}
		return repairOf(p.id, RepairCampaigns, fmt.Sprintf("%d units on loan", was.Total), fmt.Sprintf("%d, of which %d are sold", was.Total+more, sold))
	})
}

// soldAndReserve reads how many units a shard has sold by the rows of its claims and by its parked claims, and the reserve of its campaign.
func soldAndReserve(ctx context.Context, tx *sql.Tx, shard *models.Campaign, campaignID string) (sold, reserve int64, err error) {
	rows, err := accounted(ctx, tx, shard)
	if err != nil {
		return 0, 0, err
	}
	parked, err := writer.ReadParked(ctx, tx, shard.ID)
	if err != nil {
		return 0, 0, err
	}
	err = tx.QueryRowContext(ctx, "SELECT total FROM lots WHERE id = ?", campaignID).Scan(&reserve)
	return rows.Units + parked.Units, reserve, err
}

// dealToOwners deals packets to a shard that claims of it have. Packets that it has not given away stay where their rows are.
func (p *repair) dealToOwners(ctx context.Context, tx *sql.Tx, campaignID string, shard int) (*models.Repair, error) {
	n, err := sqlstore.Exec(ctx, tx, "UPDATE packets SET shard = ?, move_no = 0 WHERE campaign_id = ? AND shard <> ?"+
		" AND claim_id IN (SELECT id FROM claims WHERE campaign_id = ? AND shard = ?)", shard, campaignID, shard, campaignID, shard)
	if err != nil || n == 0 {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, "UPDATE lots SET total = (SELECT COUNT(*) FROM packets p"+
		" WHERE p.campaign_id = lots.campaign_id AND p.shard = lots.shard) WHERE campaign_id = ?", campaignID)
	if err != nil {
		return nil, err
	}
	return repairOf(p.id, RepairPackets, fmt.Sprintf("%d packets of its claims were not dealt to it", n), "they are")
}
