package shards

import (
	"context"
	"errors"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"

	"gorm.io/gorm"
)

// line is a stock level of a campaign, as in definitions.told_line.
// With one shard, the claim that crosses a line publishes it, see
// claim.lua. With several, no shard knows the stock of all, so MySQL
// has the last published line.
type line int

const (
	_ line = iota // none
	lineLow
	lineSoldOut
)

type stockLevel struct {
	ID                           string
	Total, Remaining, LowStockAt int64
	ToldLine, Line               line
}

// lineNow is the current line of a campaign; 0 while it has no packets yet.
const lineNow = "CASE WHEN total > 0 AND remaining = 0 THEN 2 WHEN total > 0 AND remaining <= low_stock_at THEN 1 ELSE 0 END"

// Check completes open moves and raises that other processes left, and
// publishes crossed lines of sharded campaigns, by what MySQL has
// applied. It returns how many it did. A failure does not stop the
// others. It serves one goroutine.
func (m *Mover) Check(ctx context.Context) (done int, err error) {
	settled, settleErr := m.settleAll(ctx)
	finished, finishErr := m.finishAll(ctx)
	done = settled + finished
	var crossed []stockLevel // unordered: ORDER BY id would scan all campaigns
	query := "SELECT id, total, remaining, low_stock_at, told_line, " + lineNow + " AS line FROM defined_lots" +
		" WHERE shard = 0 AND shards > 1 AND status <> ? AND told_line <> " + lineNow + " LIMIT ?"
	err = m.db.WithContext(ctx).Raw(query, models.StatusClosed, sqlstore.PageSize).Scan(&crossed).Error
	failed := []error{settleErr, finishErr, wrapped(err)}
	for i := range crossed {
		done++
		failed = append(failed, m.publishLine(ctx, &crossed[i]))
	}
	return done, errors.Join(failed...)
}

func (m *Mover) settleAll(ctx context.Context) (done int, err error) {
	units, err := campaigns.Excess(m.db.WithContext(ctx), "", campaigns.WithRaises)
	failed := []error{err}
	for id := range units {
		err := m.trySettle(ctx, id)
		switch {
		case err == nil:
			done++
		case !errors.Is(err, lua.ErrLocked): // another process does it
			failed = append(failed, err)
		}
	}
	return done, errors.Join(failed...)
}

func (m *Mover) finishAll(ctx context.Context) (moves int, err error) {
	var open []struct {
		CampaignID string
		DebitedAt  time.Time
	}
	query := "SELECT m.campaign_id, m.debited_at FROM stock_moves m" +
		" JOIN definitions d ON d.campaign_id = m.campaign_id AND d.status <> ?" +
		" WHERE m.credited_at IS NULL ORDER BY m.campaign_id LIMIT ?"
	err = m.db.WithContext(ctx).Raw(query, models.StatusClosed, creditAtOnce).Scan(&open).Error
	failed := []error{wrapped(err)}
	oldest := time.Duration(0)
	for i := range open {
		oldest = max(oldest, time.Since(open[i].DebitedAt))
		if i == 0 || open[i].CampaignID != open[i-1].CampaignID {
			failed = append(failed, m.Finish(ctx, open[i].CampaignID))
		}
	}
	if err == nil {
		m.metrics.open.Set(float64(len(open)))
		m.metrics.oldest.Set(oldest.Seconds())
	}
	return len(open), errors.Join(failed...)
}

// publishLine records a campaign's line, and publishes the lines
// crossed downwards in the same transaction.
func (m *Mover) publishLine(ctx context.Context, c *stockLevel) error {
	var rows []stored.OutboxRow
	for _, one := range []struct {
		line line
		kind event.Type
	}{{lineLow, event.CampaignLowStock}, {lineSoldOut, event.CampaignSoldOut}} {
		if one.line <= c.ToldLine || one.line > c.Line || one.line == lineLow && c.LowStockAt == 0 {
			continue
		}
		row, err := campaigns.NewOutboxRow(stored.OutboxEvent, &event.Event{Type: one.kind, CampaignID: c.ID, Remaining: &c.Remaining})
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return wrapped(sqlstore.InTx(ctx, m.db, func(tx *gorm.DB) error {
		var total int64
		query := "SELECT total FROM lots WHERE campaign_id = ? AND shard = 0" + sqlstore.ForUpdate(tx)
		err := tx.Raw(query, c.ID).Row().Scan(&total)
		if err != nil || total != c.Total { // it changed: the next round publishes
			return err
		}
		changed, err := sqlstore.Exec(ctx, tx, "UPDATE definitions SET told_line = ? WHERE campaign_id = ? AND told_line = ?",
			int(c.Line), c.ID, int(c.ToldLine))
		if err != nil || changed == 0 { // another process published it
			return err
		}
		return campaigns.PutOutbox(ctx, tx, rows)
	}))
}
