package shards

import (
	"context"
	"errors"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// line is a line of a campaign's stock, as definitions.told_line has it. A campaign of one shard
// publishes its lines in the claim that crosses them, see claim.lua. Of several shards none knows
// the stock of all: the line that was published last is in MySQL.
type line int

const (
	_ line = iota // none
	lineLow
	lineSoldOut
)

// stockLevel is a campaign with what its line depends on.
type stockLevel struct {
	ID                           string
	Total, Remaining, LowStockAt int64
	ToldLine, Line               line
}

// lineNow is the line that a campaign is at: none while it has no packets yet.
const lineNow = "CASE WHEN total > 0 AND remaining = 0 THEN 2 WHEN total > 0 AND remaining <= low_stock_at THEN 1 ELSE 0 END"

// Check completes what others left: totals that shards don't have yet, and moves without a credit.
// It publishes the lines that the stock of campaigns of several shards has crossed, by what MySQL has applied. It returns how many that
// were. A failure is returned after the others had their turn. It is for one goroutine.
func (m *Mover) Check(ctx context.Context) (done int, err error) {
	settled, settleErr := m.settleAll(ctx)
	finished, finishErr := m.finishAll(ctx)
	done = settled + finished
	var crossed []stockLevel // without an order: by their ids they would be looked for among all campaigns
	err = m.db.WithContext(ctx).Raw("SELECT id, total, remaining, low_stock_at, told_line, "+lineNow+" AS line FROM defined_lots WHERE shard = 0"+
		" AND shards > 1 AND status <> ? AND told_line <> "+lineNow+" LIMIT ?", models.StatusClosed, sqlstore.PageSize).Scan(&crossed).Error
	failed := []error{settleErr, finishErr, wrapped(err)}
	for i := range crossed {
		done++
		failed = append(failed, m.publishLine(ctx, &crossed[i]))
	}
	return done, errors.Join(failed...)
}

// settleAll settles the campaigns whose shards have more or less than their totals.
func (m *Mover) settleAll(ctx context.Context) (done int, err error) {
	units, err := campaigns.Excess(m.db.WithContext(ctx), "", campaigns.WithRaises)
	failed := []error{err}
	for id := range units {
		err := m.Settle(ctx, id)
		switch {
		case err == nil:
			done++
		case !errors.Is(err, lua.ErrLocked): // somebody else does it
			failed = append(failed, err)
		}
	}
	return done, errors.Join(failed...)
}

// finishAll credits the moves that lack it, and returns how many those are.
func (m *Mover) finishAll(ctx context.Context) (moves int, err error) {
	var open []struct {
		CampaignID string
		DebitedAt  time.Time
	}
	err = m.db.WithContext(ctx).Raw("SELECT m.campaign_id, m.debited_at FROM stock_moves m"+
		" JOIN definitions d ON d.campaign_id = m.campaign_id AND d.status <> ? WHERE m.credited_at IS NULL ORDER BY m.campaign_id LIMIT ?", models.StatusClosed, creditAtOnce).Scan(&open).Error
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

// publishLine records the line that a campaign is at. Those that it crossed downwards are published
// once, in the same transaction.
func (m *Mover) publishLine(ctx context.Context, c *stockLevel) error {
	var rows []models.OutboxRow
	for _, one := range []struct {
		line line
		kind models.EventType
	}{{lineLow, models.EventCampaignLowStock}, {lineSoldOut, models.EventCampaignSoldOut}} {
		if one.line <= c.ToldLine || one.line > c.Line || one.line == lineLow && c.LowStockAt == 0 {
			continue
		}
		row, err := campaigns.NewOutboxRow(models.OutboxEvent, &models.Event{Type: one.kind, CampaignID: c.ID, Remaining: &c.Remaining})
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return wrapped(sqlstore.Retry(ctx, func() error {
		return sqlstore.InTx(ctx, m.db, func(tx *sqlstore.Tx) error {
			var total int64
			err := tx.QueryRowContext(ctx, "SELECT total FROM lots WHERE campaign_id = ? AND shard = 0"+sqlstore.ForUpdate(tx), c.ID).Scan(&total)
			if err != nil || total != c.Total { // somebody changed it: the next round looks anew
				return err
			}
			changed, err := sqlstore.Exec(ctx, tx, "UPDATE definitions SET told_line = ? WHERE campaign_id = ? AND told_line = ?",
				int(c.Line), c.ID, int(c.ToldLine))
			if err != nil || changed == 0 { // somebody else published it
				return err
			}
			return campaigns.PutOutbox(ctx, tx, rows)
		})
	}))
}
