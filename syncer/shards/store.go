package shards

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models"

	"gorm.io/gorm"
)

// store keeps the books of moves in MySQL. Shards are locked before their campaign, as flushes do.
type store struct {
	db    *gorm.DB
	steps *steps.Steps
}

var errElse = errors.New("shards: the shard or the reserve is not as it was seen")

func (s *store) look(ctx context.Context, campaignID string) (*picture, error) {
	var rows []struct {
		models.Campaign `gorm:"embedded"`

		CampaignReserve, Unreleased int64
	}
	err := s.db.WithContext(ctx).Raw("SELECT s.*, c.reserve AS campaign_reserve,"+ //nolint:unqueryvet // a shard is a whole campaign
		" CASE WHEN c.kind = ? AND s.shard = 1 THEN "+unreleased+" ELSE 0 END AS unreleased"+
		" FROM campaigns c JOIN campaign_shards s ON s.campaign_id = c.id"+
		" WHERE c.id = ? ORDER BY s.shard", models.KindPacket, sqlstore.Now().Format(sqlstore.TimeLayout), campaignID).Scan(&rows).Error
	if err == nil && len(rows) == 0 {
		err = models.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("shards: %s: %w", campaignID, err)
	}
	p := &picture{books: make([]models.Campaign, len(rows)), unreleased: rows[0].Unreleased}
	p.owed = max(0, -rows[0].CampaignReserve)
	p.reserve = max(0, rows[0].CampaignReserve-p.unreleased)
	for i := range rows {
		p.books[i] = rows[i].Campaign
	}
	return p, nil
}

func (s *store) begin(ctx context.Context, c *models.Campaign, kind models.MoveKind, units int64) (*models.StockMove, error) {
	campaignID, shard := models.SplitShardID(c.ID)
	move := &models.StockMove{
		CampaignID: campaignID, Shard: shard, No: c.MoveNo + 1, Kind: kind, Want: units, Status: models.MoveOpen, BegunAt: sqlstore.Now(),
	}
	var positions []int64
	if kind == models.MoveGrant && c.Kind == models.KindPacket {
		var err error
		positions, err = s.pick(ctx, move)
		if err != nil || len(positions) == 0 {
			return nil, err
		}
		s.steps.At("picked")
	}
	granted := int64(0)
	if kind == models.MoveGrant {
		granted = move.Want
	}
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		err := one(tx.ExecContext(ctx, "UPDATE lots SET move_no = move_no + 1, total = total + ?"+
			" WHERE id = ? AND epoch = ? AND residency = ? AND move_no = ? AND moved_no = ?",
			granted, c.ID, c.Epoch, string(models.ResidencyResident), c.MoveNo, c.MoveNo))
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO stock_moves"+
			" (campaign_id, shard, no, kind, want, status, begun_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			campaignID, shard, move.No, string(kind), move.Want, string(models.MoveOpen), move.BegunAt.Format(sqlstore.TimeLayout))
		if err == nil && len(positions) > 0 {
			s.steps.At("dealt")
			err = s.deal(ctx, tx, move, positions)
		}
		if err != nil || granted == 0 {
			return err
		}
		s.steps.At("granted")
		return one(tx.ExecContext(ctx, "UPDATE lots SET total = total - ? WHERE id = ? AND total >= ?", granted, campaignID, granted))
	})
	switch {
	case errors.Is(err, errElse):
		return nil, nil //nolint:nilnil // the next look tells
	case err != nil:
		return nil, fmt.Errorf("shards: begin a move of %s: %w", c.ID, err)
	}
	return move, nil
}

func (s *store) open(ctx context.Context, c *models.Campaign) (*models.StockMove, error) {
	campaignID, shard := models.SplitShardID(c.ID)
	var moves []models.StockMove
	err := s.db.WithContext(ctx).
		Where("campaign_id = ? AND shard = ? AND no = ? AND status = ?", campaignID, shard, c.MoveNo, models.MoveOpen).
		Find(&moves).Error
	if err != nil {
		return nil, fmt.Errorf("shards: open move of %s: %w", c.ID, err)
	}
	if len(moves) == 0 {
		return nil, nil //nolint:nilnil // it is done by now
	}
	if c.Kind == models.KindPacket && moves[0].Kind == models.MoveGrant {
		if found, err := s.granted(ctx, &moves[0]); err != nil || !found {
			return nil, err
		}
	}
	return &moves[0], nil
}

func (s *store) finish(ctx context.Context, m *models.StockMove, amount int64) error {
	back := int64(0)
	if m.Kind == models.MoveRecall {
		back = amount
	}
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		err := one(tx.ExecContext(ctx, "UPDATE lots SET moved_no = move_no, total = total - ?"+
			" WHERE id = ? AND move_no = ? AND moved_no = ?",
			back, models.ShardID(m.CampaignID, m.Shard), m.No, m.No-1))
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE stock_moves SET status = ?, amount = ?, done_at = ? WHERE campaign_id = ? AND shard = ? AND no = ?",
			string(models.MoveDone), amount, sqlstore.Now().Format(sqlstore.TimeLayout), m.CampaignID, m.Shard, m.No)
		if err == nil && back > 0 && len(m.Packets) > 0 {
			s.steps.At("counted")
			err = s.putBack(ctx, tx, m)
		}
		if err != nil || back == 0 {
			return err
		}
		s.steps.At("recalled")
		_, err = tx.ExecContext(ctx, "UPDATE lots SET total = total + ? WHERE id = ?", back, m.CampaignID)
		return err
	})
	if errors.Is(err, errElse) {
		return nil // somebody else was faster
	}
	if err != nil {
		return fmt.Errorf("shards: end move %d of %s: %w", m.No, models.ShardID(m.CampaignID, m.Shard), err)
	}
	return nil
}

// inTx tries a transaction again. One that took effect although its answer was lost finds the shard moved on.
func (s *store) inTx(ctx context.Context, change func(tx *sql.Tx) error) error {
	return sqlstore.Retry(ctx, func() error { return sqlstore.InTx(ctx, s.db, change) })
}

// one returns errElse unless a statement changed one row.
func one(result sql.Result, err error) error {
	return changed(1, errElse)(result, err)
}
