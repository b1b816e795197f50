package shards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// line is a line of a campaign's stock, as definitions.told_line has it. A campaign of one shard publishes its lines in the claim that crosses
// them, see claim.lua. Of several shards none knows the stock of all: the line that was published last is in MySQL.
type line int

const (
	lineNone line = iota
	lineLow
	lineSoldOut
)

// stockLevel is a campaign with what its line depends on.
type stockLevel struct {
	ID                         string
	Total, LowStockAt, Lowered int64
	ToldLine                   line
}

func lineOf(c *stockLevel, remaining int64) line {
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

// Check ends transfers that no one ended, and reports the lines that the stock of campaigns of several shards has crossed. It returns
// how many transfers and lines that were. A failure is returned after the others had their turn. It is for one goroutine.
func (m *Mover) Check(ctx context.Context) (done int, err error) {
	fetch := func(after string) (page []stockLevel, err error) {
		err = m.db.WithContext(ctx).Raw("SELECT id, total, low_stock_at, told_line, lowered FROM defined_lots WHERE id > ? AND shard = 0 AND shards > 1"+
			" AND status <> ? ORDER BY id LIMIT ?", after, models.StatusClosed, sqlstore.PageSize).Scan(&page).Error
		if err != nil {
			err = fmt.Errorf("shards: check: %w", err)
		}
		return page, err
	}
	last := m.inTransit
	m.inTransit = make(map[pair]transit)
	err = sqlstore.EachRow(ctx, func(c *stockLevel) string { return c.ID }, fetch, func(c *stockLevel) error {
		n, err := m.checkCampaign(ctx, c, last)
		done += n
		return err
	})
	m.measure()
	return done, err
}

// pair is two lots between which units are in flight.
type pair struct {
	campaignID string
	from, to   int // places
}

// transit is since when the units up to a number have been in flight.
type transit struct {
	since time.Time
	upto  int64
}

// checkCampaign checks one campaign. One of which a lot is not in Redis, or does not answer, is checked again later. last is what was
// in flight at the last check.
func (m *Mover) checkCampaign(ctx context.Context, c *stockLevel, last map[pair]transit) (done int, err error) {
	before, err := m.snapshot(ctx, c.ID, 1, nil)
	if err != nil {
		return 0, err
	}
	rows, err := campaigns.ReadLots(m.db.WithContext(ctx), c.ID)
	if err != nil || len(rows) != len(before.views) {
		return 0, err
	}
	done, err = m.loadBehind(ctx, before.views, rows)
	if err != nil {
		return done, err
	}
	steps := m.openMoves(before, last)
	done += len(steps)
	if err := m.doAll(ctx, before, steps); err != nil {
		return done, err
	}
	if err := m.keepTotal(ctx, c, before); err != nil {
		return done, err
	}
	remaining, known, err := m.remaining(ctx, c, before, rows)
	if err != nil || !known {
		return done, err
	}
	if now := lineOf(c, remaining); now != c.ToldLine {
		done++
		err = m.publishLine(ctx, c, now, remaining)
	}
	return done, err
}

// openMoves are the steps that end what is in flight, and those that bring free units to lots that have sold more than they have.
func (m *Mover) openMoves(p *snapshot, last map[pair]transit) (steps []step) {
	free := make([]int64, len(p.views))
	for at := range p.views {
		free[at] = p.free(at)
	}
	for to := range p.views {
		lacks := int64(0)
		if p.views[to].Err == nil {
			lacks = p.views[to].Lacks()
		}
		for from := range p.views {
			if n := p.inFlight(from, to); n != 0 {
				steps = append(steps, step{verb: verbMove, from: from, to: to})
				lacks -= n
				out := p.views[from].Out[p.number(to)]
				in := p.views[to].In[p.number(from)]
				key := pair{campaignID: p.campaign.ID, from: from, to: to}
				was, isKnown := last[key]
				if !isKnown || min(out, in) >= was.upto { // others are in flight by now
					was = transit{since: time.Now(), upto: max(out, in)}
				}
				m.inTransit[key] = was
			}
		}
		for from := range p.views {
			if units := min(free[from], lacks); units > 0 && from != to && p.inFlight(from, to) == 0 {
				steps = append(steps, step{verb: verbMove, from: from, to: to, units: units})
				lacks -= units
				free[from] -= units
			}
		}
	}
	return steps
}

// keepTotal has the reserve and MySQL agree on what was taken out of the total of a campaign. More was taken out in Redis if who lowered
// the total died, or is about to record it; less, if Redis lost that. A MySQL that was restored to a time before a raise has a lower total.
func (m *Mover) keepTotal(ctx context.Context, c *stockLevel, p *snapshot) error {
	reserve := len(p.views) - 1
	v := &p.views[reserve]
	isPackets := p.campaign.Kind == models.KindPacket // whose total is not lowered: what was taken out is withheld
	if isPackets || v.Err != nil || v.Out[0] == c.Lowered && v.In[0]-v.Out[0] <= c.Total {
		return nil //nolint:nilerr // it is checked again later
	}
	now, err := campaigns.Read(m.db.WithContext(ctx), c.ID) // c was read before the lots
	if err != nil {
		return err
	}
	lowered := v.Out[0]
	if want := max(now.Lowered, v.In[0]-now.Total); lowered < want {
		lowered, err = m.Lower(ctx, c.ID, want)
	}
	if err == nil && lowered > now.Lowered {
		err = sqlstore.On(m.db.WithContext(ctx)).Run("UPDATE definitions SET lowered = ? WHERE campaign_id = ? AND lowered = ?", lowered, c.ID, now.Lowered)
		if err == nil {
			_, err = m.loader.Hydrate(ctx, p.lot(reserve).ID)
		}
	}
	if err != nil && !errors.Is(err, campaigns.ErrTaken) {
		return fmt.Errorf("shards: total of %s: %w", c.ID, err)
	}
	return nil
}

// remaining is how many units a campaign had at a moment between two snapshots, unless units became free in the meantime.
func (m *Mover) remaining(
	ctx context.Context, c *stockLevel, before *snapshot, rows []models.Campaign,
) (remaining int64, known bool, err error) {
	after, err := m.snapshot(ctx, c.ID, 1, nil)
	if err != nil {
		return 0, false, err
	}
	remaining = c.Total
	for i := range after.views {
		a := &after.views[i]
		b := &before.views[i]
		switch {
		case a.Err == nil && b.Err == nil && a.Epoch == b.Epoch && a.Ups == b.Ups:
			remaining -= b.Taken
		case isEvicted(&rows[i]) && b.Err != nil && a.Err != nil:
			remaining -= rows[i].Claimed
		default:
			return 0, false, nil
		}
	}
	return max(0, remaining), true, nil
}

// isEvicted reports whether MySQL has all of a lot.
func isEvicted(c *models.Campaign) bool {
	return c.Residency == models.ResidencyEvicted || c.Residency == models.ResidencyNone
}

// errConflict says that someone else published the line, or changed the total.
var errConflict = errors.New("shards: the line is not as it was seen")

// publishLine records the line that a campaign is at. Those that it crossed downwards are published once, in the same transaction.
func (m *Mover) publishLine(ctx context.Context, c *stockLevel, now line, remaining int64) error {
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
		return sqlstore.InTx(ctx, m.db, func(tx *sqlstore.Tx) error {
			var total, changed int64
			err := tx.QueryRowContext(ctx, "SELECT total FROM lots WHERE campaign_id = ? AND shard = 0"+sqlstore.ForUpdate(tx), c.ID).Scan(&total)
			if err == nil && total == c.Total {
				changed, err = sqlstore.Exec(ctx, tx, "UPDATE definitions SET told_line = ? WHERE campaign_id = ? AND told_line = ?",
					int(now), c.ID, int(c.ToldLine))
			}
			if err == nil && changed == 0 {
				err = sqlstore.Final(errConflict)
			}
			if err != nil {
				return err
			}
			return campaigns.PutOutbox(ctx, tx, rows)
		})
	})
	if errors.Is(err, errConflict) {
		return nil // someone else was faster
	}
	if err != nil {
		return fmt.Errorf("shards: line of %s: %w", c.ID, err)
	}
	return nil
}
