package residency

import (
	"context"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// attemptShard is attempt for a shard of a campaign. It ends the shard's open move in the same transaction.
func (h *Hydrator) attemptShard(ctx context.Context, c *models.Campaign) (n int64, err error) {
	err = sqlstore.Retry(ctx, func() error {
		return h.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			changed, err := sqlstore.On(tx).Exec("UPDATE lots SET load_attempts = load_attempts + 1 WHERE id = ? AND epoch = ? AND residency = ?",
				c.ID, c.Epoch, c.Residency)
			n = 0
			if err != nil || changed == 0 {
				return err
			}
			if err := settleMove(tx, c); err != nil {
				return err
			}
			return sqlstore.On(tx).Row("SELECT load_attempts FROM lots WHERE id = ?", c.ID).Scan(&n)
		})
	})
	if err != nil {
		return 0, fmt.Errorf("residency: hydrate %s: %w", c.ID, err)
	}
	return n, nil
}

// settleMove ends the open move of a shard that is about to be loaded, and notes what the load brings: MySQL alone knows now what the
// shard has on loan. A grant is part of it, and the load brings it. Of a recall nothing came back to the reserve yet, so nothing is
// recalled. None begins before the load is confirmed.
func settleMove(tx *gorm.DB, c *models.Campaign) error {
	campaignID, shard := models.SplitShardID(c.ID)
	err := sqlstore.On(tx).Row("SELECT total, move_no, moved_no FROM lots WHERE id = ?", c.ID).Scan(&c.Total, &c.MoveNo, &c.MovedNo)
	if err != nil || c.MoveNo == c.MovedNo {
		return err
	}
	c.MovedNo = c.MoveNo
	err = sqlstore.On(tx).Run("UPDATE stock_moves SET status = ?, amount = CASE kind WHEN ? THEN want ELSE 0 END, done_at = ?"+
		" WHERE campaign_id = ? AND shard = ? AND no = ? AND status = ?",
		models.MoveDone, models.MoveGrant, sqlstore.Now(), campaignID, shard, c.MoveNo, models.MoveOpen)
	if err != nil {
		return err
	}
	return sqlstore.On(tx).Run("UPDATE lots SET moved_no = ? WHERE id = ?", c.MoveNo, c.ID)
}
