package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// settleLease is how long one process may settle a campaign alone. Two at
// once would lower a total twice, which the next round would correct.
const settleLease = 10 * time.Second

// excessOf returns by how many units a campaign's shards exceed its
// total, with units on their way.
func excessOf(db *gorm.DB, campaignID string) (int64, error) {
	units, err := campaigns.Excess(db, campaignID, campaigns.WithRaises)
	return units[campaignID], err
}

// How long Settle waits for another process that settles, and how often
// it tries. A step takes a flush of MySQL.
const (
	settleWait = 2 * time.Second
	settlePoll = 10 * time.Millisecond
)

// Settle makes the shards of a campaign add up to its total. Free units
// are taken out first, the rest from all shards in proportion. These
// refuse claims until as many units are released.
//
// It waits for another process that settles the campaign, so that a
// change is in force for the next claim. Errors: lua.ErrLocked after
// settleWait, ErrBlocked, and those of Redis or MySQL.
func (m *Mover) Settle(ctx context.Context, campaignID string) error {
	until := time.Now().Add(settleWait)
	for {
		err := m.trySettle(ctx, campaignID)
		if !errors.Is(err, lua.ErrLocked) || time.Now().After(until) || sleep.For(ctx, settlePoll) != nil {
			return err
		}
	}
}

// trySettle does so unless another process does it: lua.ErrLocked.
func (m *Mover) trySettle(ctx context.Context, campaignID string) error {
	units, err := excessOf(m.db.WithContext(ctx), campaignID)
	if err != nil || units == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleLease)
	defer cancel()
	lock, err := m.scripts.LockSettling(ctx, campaignID, settleLease)
	if err != nil {
		return wrapped(err)
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }() // it expires anyway
	c, err := campaigns.Read(m.db.WithContext(ctx), campaignID)
	if err != nil {
		return err
	}
	for range maxSteps {
		left, err := m.settle(ctx, &c)
		if err != nil || left == 0 {
			return err
		}
	}
	return fmt.Errorf("%w: others take the units of %s", ErrBlocked, campaignID)
}

// settle is one step. left remains to be settled.
func (m *Mover) settle(ctx context.Context, c *models.Campaign) (left int64, err error) {
	if err := m.await(ctx, c.ID); err != nil { // else a debit may be made twice
		return 0, err
	}
	units, err := excessOf(m.db.WithContext(ctx), c.ID)
	switch {
	case err != nil || units == 0:
		return 0, err
	case units < 0:
		if err := m.raise(ctx, c); err != nil {
			return 0, err
		}
		return 0, m.Finish(ctx, c.ID)
	}
	p := m.snapshot(ctx, c.ID, c.Shards)
	debits := p.lowering(units)
	if len(debits) == 0 { // users have them, or a shard that is away
		if loads := p.absent(); len(loads) > 0 {
			return units, m.load(ctx, loads...)
		}
		if away := p.away(); away != nil {
			return 0, fmt.Errorf("%w: %s: %w", ErrBlocked, c.ID, away)
		}
		debits = p.lowerTaken(units)
	}
	for _, s := range debits {
		if _, _, err := m.debit(ctx, p, &s); err != nil {
			return 0, err
		}
	}
	return units, nil
}

func (m *Mover) raise(ctx context.Context, c *models.Campaign) error {
	return wrapped(sqlstore.InTx(ctx, m.db, func(tx *gorm.DB) error {
		if err := campaigns.LockLots(tx, c); err != nil {
			return err
		}
		units, err := excessOf(tx, c.ID)
		for shard := 1; shard <= c.Shards && err == nil; shard++ {
			if part := models.DealtTo(shard, c.Shards, -units); part > 0 {
				err = tx.Exec("INSERT INTO stock_moves (id, campaign_id, from_shard, to_shard, units, debited_at)"+
					" VALUES (?, ?, 0, ?, ?, ?)", uuid.NewString(), c.ID, shard, part, sqlstore.Now()).Error
			}
		}
		return err
	}))
}

// lowering returns debits of free units out of
// the total, evenly: the poorest give first.
func (p *snapshot) lowering(units int64) (debits []move) {
	var givers []int
	for i := range p.views {
		if p.views[i].Err == nil && p.views[i].Free() > 0 {
			givers = append(givers, i)
		}
	}
	slices.SortStableFunc(givers, func(i, j int) int { return cmp.Compare(p.views[i].Free(), p.views[j].Free()) })
	for n, i := range givers {
		part := min(p.views[i].Free(), models.DealtTo(1, len(givers)-n, units))
		units -= part
		if part > 0 {
			debits = append(debits, move{from: i + 1, units: part})
		}
	}
	return debits
}

// lowerTaken returns debits from shards without free units, in
// proportion to their totals.
func (p *snapshot) lowerTaken(units int64) (debits []move) {
	all := int64(0)
	for i := range p.views {
		all += max(0, p.views[i].Total)
	}
	for i := range p.views {
		total := max(0, p.views[i].Total)
		if total == 0 || units == 0 {
			continue
		}
		part := min(total, units, partOf(units, total, all))
		all -= total
		units -= part
		debits = append(debits, move{from: i + 1, units: part, taken: true})
	}
	return debits
}

// partOf is units * total / all, rounded up;
// total <= all. The product may exceed 64 bits.
func partOf(units, total, all int64) int64 {
	high, low := bits.Mul64(uint64(units), uint64(total))
	part, rest := bits.Div64(high, low, uint64(all))
	if rest > 0 {
		part++
	}
	return int64(part)
}

var _ campaigns.Settler = (*Mover)(nil)
