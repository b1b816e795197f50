package shards

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// line is a line of a campaign's stock, as campaigns.told_line has it. A campaign of one shard tells its lines in the claim that crosses
// them, see claim.lua. Of several shards none knows the stock of all: the line that was told last is in MySQL.
type line int

const (
	lineNone line = iota
	lineLow
	lineSoldOut
)

// lined is a campaign with what its line depends on.
type lined struct {
	ID                string
	Total, LowStockAt int64
	ToldLine          line
}

func lineOf(c *lined, remaining int64) line {
	switch {
	case c.Total == 0: // no packets yet
		return lineNone
	case remaining <= 0:
		return lineSoldOut
	case remaining <= c.LowStockAt:
		return lineLow
	}
	return lineNone
}

// Look completes moves that nobody completed, and tells the lines that the stock of campaigns of several shards has crossed. It returns
// how many moves and lines that were. A failure is returned after the others had their turn.
func (m *Mover) Look(ctx context.Context) (done int, err error) {
	fetch := func(after string) (page []lined, err error) {
		err = m.db.WithContext(ctx).Raw("SELECT id, total, low_stock_at, told_line FROM campaigns WHERE id > ? AND shards > 1 AND status <> ?"+
			" ORDER BY id LIMIT ?", after, models.StatusClosed, sqlstore.PageSize).Scan(&page).Error
		if err != nil {
			err = fmt.Errorf("shards: look: %w", err)
		}
		return page, err
	}
	seen := 0
	err = sqlstore.EachRow(ctx, func(c *lined) string { return c.ID }, fetch, func(c *lined) error {
		n, err := m.lookAt(ctx, c)
		done = done + n
		seen = seen + 1
		return err
	})
	if seen == 0 {
		m.ResetMetrics()
		return done, err
	}
	return done, errors.Join(err, m.measure(ctx))
}

// lookAt looks at one campaign. One of which a shard is not in Redis, or does not answer, is looked at again later.
func (m *Mover) lookAt(ctx context.Context, c *lined) (done int, err error) {
	before, err := m.look(ctx, c.ID, nil)
	if err != nil {
		return 0, err
	}
	for i := range before.books {
		b := &before.books[i]
		v := &before.views[i]
		verb := verbFinish
		switch {
		case v.Err != nil || b.Epoch != v.Epoch:
			continue
		case v.Moves < b.MovedNo: // Redis went back: units that went elsewhere are there again
			verb = verbLoad
		case b.MoveNo != b.MovedNo:
		case before.owed > 0 && v.Free() > 0: // what is free makes up for what was sold twice
			verb = verbBegin
		default:
			continue
		}
		done++
		s := step{verb: verb, shard: i + 1, kind: models.MoveRecall, units: min(before.owed, v.Free())}
		if err := m.do(ctx, before, s, map[int]bool{}); err != nil {
			return done, err
		}
	}
	remaining, known, err := m.remaining(ctx, c, before)
	if err != nil || !known {
		return done, err
	}
	if now := lineOf(c, remaining); now != c.ToldLine {
		done++
		err = m.tell(ctx, c, now, remaining)
	}
	return done, err
}

// remaining is how many units a campaign had at a moment between two looks, unless units became free meanwhile.
func (m *Mover) remaining(ctx context.Context, c *lined, before *picture) (remaining int64, known bool, err error) {
	after, err := m.look(ctx, c.ID, nil)
	if err != nil || len(after.views) != len(before.views) {
		return 0, false, err
	}
	remaining = c.Total
	for i := range after.views {
		a := &after.views[i]
		b := &before.views[i]
		row := &after.books[i]
		switch {
		case a.Err == nil && b.Err == nil && a.Epoch == b.Epoch && a.Ups == b.Ups:
			remaining -= b.Taken
		case isEvicted(row) && b.Err != nil && a.Err != nil:
			remaining -= row.Claimed
		default:
			return 0, false, nil
		}
	}
	return max(0, remaining), true, nil
}

// isEvicted tells whether MySQL has all of a shard.
func isEvicted(c *models.Campaign) bool {
	return c.Residency == models.ResidencyEvicted || c.Residency == models.ResidencyNone
}

// tell notes the line that a campaign is at. Those that it crossed downwards are told once, in the transaction that notes it.
func (m *Mover) tell(ctx context.Context, c *lined, now line, remaining int64) error {
	var rows []models.OutboxRow
	for _, one := range []struct {
		line line
		kind models.EventType
	}{{lineLow, models.EventCampaignLowStock}, {lineSoldOut, models.EventCampaignSoldOut}} {
		if one.line <= c.ToldLine || one.line > now || one.line == lineLow && c.LowStockAt == 0 {
			continue
		}
		row, err := campaigns.NewOutboxRow(models.OutboxEvent, &models.Event{Type: one.kind, CampaignID: c.ID, Remaining: &remaining})
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	err := sqlstore.Retry(ctx, func() error {
		return sqlstore.InTx(ctx, m.db, func(tx *sql.Tx) error {
			err := one(tx.ExecContext(ctx, "UPDATE lots SET told_line = ? WHERE id = ? AND told_line = ? AND campaign_total = ?",
				int(now), c.ID, int(c.ToldLine), c.Total))
			if err != nil {
				return err
			}
			return campaigns.PutOutbox(ctx, tx, rows)
		})
	})
	if errors.Is(err, errElse) {
		return nil // somebody else was faster
	}
	if err != nil {
		return fmt.Errorf("shards: line of %s: %w", c.ID, err)
	}
	return nil
}
