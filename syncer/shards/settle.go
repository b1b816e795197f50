package shards

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// settleLease is how long a process has the settling of a campaign to itself. Two that settle at once lower a total twice, which the next
// round puts right.
const settleLease = 10 * time.Second

// excess is by how many units shards, and moves between them, have more than the total of their campaign; below 0 they have less. A
// campaign of which MySQL lacks some sums has none.
const excess = "SELECT w.campaign_id AS id, (SELECT SUM(s.total) FROM lots s WHERE s.campaign_id = w.campaign_id AND s.shard > 0)" +
	" + COALESCE((SELECT SUM(m.units) FROM stock_moves m WHERE m.credited_at IS NULL AND m.campaign_id = w.campaign_id), 0) - w.total AS units" +
	" FROM lots w JOIN definitions d ON d.campaign_id = w.campaign_id WHERE w.shard = 0 AND d.shards > 1 AND d.kind <> ? AND d.status <> ?" +
	" AND NOT EXISTS (SELECT 1 FROM stock_flushes f WHERE f.waiting = 1 AND f.campaign_id = w.campaign_id)"

func (m *Mover) excessOf(db *gorm.DB, campaignID string) (units int64, err error) {
	var row struct{ Units int64 }
	err = sqlstore.On(db).Scan(&row, excess+" AND w.campaign_id = ?", models.KindPacket, models.StatusClosed, campaignID)
	return row.Units, err
}

// Settle has the shards of a campaign have as many units as its total says. Units that nobody has are taken out first. What they don't
// cover goes from the shards in proportion to what they have: these refuse claims until as many units came back.
func (m *Mover) Settle(ctx context.Context, campaignID string) error {
	units, err := m.excessOf(m.db.WithContext(ctx), campaignID)
	if err != nil || units == 0 {
		return wrapped(err)
	}
	lock, err := m.scripts.LockSettling(ctx, campaignID, settleLease)
	if err != nil {
		return wrapped(err)
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }() // else it runs out
	c, err := m.campaign(ctx, campaignID, 1)
	if err != nil {
		return err
	}
	for range maxSteps {
		left, err := m.settle(ctx, c)
		if err != nil || left == 0 {
			return err
		}
	}
	return fmt.Errorf("%w: others take the units of %s", ErrBlocked, campaignID)
}

// settle is one step. left is what is to be settled still.
func (m *Mover) settle(ctx context.Context, c *models.Campaign) (left int64, err error) {
	waiting, cancel := context.WithTimeout(ctx, appliedTimeout)
	defer cancel()
	partitions, err := m.partitions(ctx, c.ID)
	if err != nil {
		return 0, err
	}
	if err := m.awaitApplied(waiting, partitions); err != nil { // a debit that MySQL lacks would be made again
		return 0, err
	}
	units, err := m.excessOf(m.db.WithContext(ctx), c.ID)
	switch {
	case err != nil || units == 0:
		return 0, wrapped(err)
	case units < 0:
		if err := m.raise(ctx, c); err != nil {
			return 0, err
		}
		return 0, m.Finish(ctx, c.ID)
	}
	p := m.snapshot(ctx, c)
	if loads := p.absent(); len(loads) > 0 {
		return units, m.load(ctx, loads)
	}
	if away := p.away(); away != nil {
		return 0, fmt.Errorf("%w: %s: %w", ErrBlocked, c.ID, away)
	}
	for _, s := range p.lowering(units) {
		if _, err := m.debit(ctx, p, &s); err != nil {
			return 0, err
		}
	}
	return units, nil
}

// raise makes moves from the total to the shards, which lack units.
func (m *Mover) raise(ctx context.Context, c *models.Campaign) error {
	return wrapped(sqlstore.Retry(ctx, func() error {
		return m.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := campaigns.LockLots(tx, c); err != nil {
				return err
			}
			units, err := m.excessOf(tx, c.ID)
			if err != nil || units >= 0 {
				return err
			}
			for shard := 1; shard <= c.Shards; shard++ {
				part := models.DealtTo(shard, c.Shards, -units)
				if part == 0 {
					continue
				}
				id, err := uuid.NewV7()
				if err != nil {
					return sqlstore.Final(err)
				}
				err = sqlstore.On(tx).Run("INSERT INTO stock_moves (id, campaign_id, from_shard, to_shard, units, debited_at) VALUES (?, ?, 0, ?, ?, ?)",
					id.String(), c.ID, shard, part, sqlstore.Now())
				if err != nil {
					return err
				}
			}
			return nil
		})
	}))
}

// lowering are the debits that take units out of the total: as many as are free, from those that have the most; else the rest.
func (p *snapshot) lowering(units int64) (debits []move) {
	free := int64(0)
	order := make([]int, len(p.views))
	for i := range p.views {
		free += p.views[i].Free()
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p.views[j].Free(), p.views[i].Free()) })
	if free > 0 {
		for n, i := range order {
			part := min(p.views[i].Free(), (units+int64(len(order)-n)-1)/int64(len(order)-n))
			if n == 0 { // what the others can't give
				part = min(p.views[i].Free(), max(part, units-(free-p.views[i].Free())))
			}
			if part > 0 {
				debits = append(debits, move{from: i + 1, units: part})
				units -= part
				free -= p.views[i].Free()
			}
		}
		return debits
	}
	return p.lowerTaken(units)
}

// lowerTaken takes units out of shards that have none free, in proportion to their totals.
func (p *snapshot) lowerTaken(units int64) (debits []move) {
	all := int64(0)
	for i := range p.views {
		all += max(0, p.views[i].Total)
	}
	for i := range p.views {
		if all == 0 || units == 0 {
			return debits
		}
		total := max(0, p.views[i].Total)
		part := min(total, units, partOf(units, total, all))
		all -= total
		if part > 0 {
			debits = append(debits, move{from: i + 1, units: part, taken: true})
			units -= part
		}
	}
	return debits
}

// partOf is units * total / all, rounded up. total is at most all; the product may exceed 64 bits.
func partOf(units, total, all int64) int64 {
	high, low := bits.Mul64(uint64(units), uint64(total))
	part, rest := bits.Div64(high, low, uint64(all))
	if rest > 0 {
		part++
	}
	return int64(part)
}

var _ campaigns.Settler = (*Mover)(nil)
