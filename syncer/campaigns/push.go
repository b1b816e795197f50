package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/writer"
)

// push sends Redis the packets that it does not know of: those behind position pushed that have no owner. None of them can be
// taken in the meantime: no earlier load is in Redis any more, and this load does not hold them yet. Any number may push at once, and
// any may die half way: Redis takes each position once, in order. A shard gets those that were credited to it when it is loaded, once, and
// the reserve those that it has not debited.
func (a Applier) push(ctx context.Context, c *models.Campaign, state *lua.State) error {
	last, err := a.lastPosition(ctx, c)
	if err != nil || state.Pushed >= last {
		return err
	}
	has, err := PacketsOfLot(ctx, a.db.ConnPool, c.ID)
	if err != nil {
		return err
	}
	pool := a.db.ConnPool
	parked, err := writer.ReadParked(ctx, pool, c.ID)
	if err != nil {
		return err
	}
	campaignID, _ := models.SplitShardID(c.ID)
	rows, err := pool.QueryContext(ctx, "SELECT position, id, amount, release_at, returned_at IS NOT NULL FROM packets"+
		ByPosition(a.db.Name())+" WHERE campaign_id = ? AND position > ? AND position <= ? AND claim_id IS NULL ORDER BY position",
		campaignID, state.Pushed, last)
	if err != nil {
		return fmt.Errorf("campaigns: push %s: %w", c.ID, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	p := pusher{Applier: a, c: c, pushed: state.Pushed, upto: state.Pushed, parked: parked.Packets(), has: has}
	for rows.Next() {
		if err := p.add(ctx, rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("campaigns: push %s: %w", c.ID, err)
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	p.upto = last // the last ones may have owners
	return p.send(ctx)
}

// lastPosition is the position up to which Redis is told of the packets of a lot.
func (a Applier) lastPosition(ctx context.Context, c *models.Campaign) (last int64, err error) {
	campaignID, shard := models.SplitShardID(c.ID)
	if shard > 0 && shard < models.ReserveLot {
		return models.PacketsMax, nil // which come with credits, too
	}
	if shard == 0 {
		return c.Total, nil
	}
	err = sqlstore.On(a.db.WithContext(ctx)).Scan(&last, "SELECT total FROM lots WHERE id = ?", campaignID)
	if err != nil {
		return 0, fmt.Errorf("campaigns: push %s: %w", c.ID, err)
	}
	return last, nil
}

// ByPosition has a query on packets use the index of their positions.
func ByPosition(dialect string) string { return sqlstore.ByIndex(dialect, "packets_place") }

// pusher sends packets in runs: one call a run, and one time of release.
type pusher struct {
	Applier

	c         *models.Campaign
	pushed    int64 // Redis knows the packets up to this position
	upto      int64 // position of the last packet of the run
	releaseMs int64
	run       []pushRow
	packets   []models.Packet // of one call

	parked map[string]bool      // packets of parked claims: they were given to a user
	has    func(id string) bool // whether the lot has a packet
}

type pushRow struct {
	position int64
	packet   models.Packet
	returned bool
}

// add takes the next row.
func (p *pusher) add(ctx context.Context, rows *sql.Rows) error {
	var row pushRow
	var release sql.NullTime
	if err := rows.Scan(&row.position, &row.packet.ID, &row.packet.Amount, &release, &row.returned); err != nil {
		return fmt.Errorf("campaigns: push %s: %w", p.c.ID, err)
	}
	at := ReleaseMs(release)
	if len(p.run) == lua.PushMax || len(p.run) > 0 && at != p.releaseMs {
		if err := p.send(ctx); err != nil {
			return err
		}
	}
	if row.position > p.pushed && !p.parked[row.packet.ID] && p.has(row.packet.ID) {
		p.run = append(p.run, row)
		p.releaseMs = at
		p.upto = row.position
	}
	return nil
}

// send sends the run to Redis, without what another pusher has sent in the meantime.
func (p *pusher) send(ctx context.Context) error {
	for p.pushed < p.upto {
		call := lua.Push{Epoch: p.c.Epoch, After: p.pushed, Upto: p.upto, ReleaseMs: p.releaseMs, Packets: p.packets[:0]}
		for i := range p.run {
			if p.run[i].position <= p.pushed {
				continue
			}
			call.Units++
			if !p.run[i].returned {
				call.Packets = append(call.Packets, p.run[i].packet)
			}
		}
		at, err := p.scripts.Push(ctx, p.c.ID, &call)
		switch {
		case err != nil:
			return fmt.Errorf("campaigns: push %s: %w", p.c.ID, err)
		case at < p.pushed:
			return fmt.Errorf("%w: %s: packets up to %d were sent to redis, it holds those up to %d", ErrMoved, p.c.ID, p.pushed, at)
		}
		p.pushed = at
		p.packets = call.Packets
		p.steps.At("pushed")
	}
	p.run = p.run[:0]
	return nil
}
