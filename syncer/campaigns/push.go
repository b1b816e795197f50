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
// taken meanwhile: no earlier load is in Redis any more, and this load does not hold them yet. Any number may push at once, and
// any may die half way: Redis takes each position once, in order. A shard gets those that were dealt to it by the moves that its load
// knows; it takes no move before it is open, and then it has all of them.
func (a Applier) push(ctx context.Context, c *models.Campaign, state *lua.State) error {
	pool := a.db.ConnPool
	pushed := state.Pushed
	parked, err := writer.ReadParked(ctx, pool, c.ID)
	if err != nil {
		return err
	}
	const query = "SELECT position, id, amount, release_at, returned_at IS NOT NULL FROM packets"
	var rows *sql.Rows
	if campaignID, shard := models.SplitShardID(c.ID); shard > 0 {
		rows, err = pool.QueryContext(ctx, query+" WHERE campaign_id = ? AND shard = ? AND move_no <= ? AND position > ?"+
			" AND claim_id IS NULL ORDER BY position", campaignID, shard, state.Moves, pushed)
	} else {
		rows, err = pool.QueryContext(ctx, query+ByPosition(a.db.Name())+" WHERE campaign_id = ? AND position > ? AND position <= ?"+
			" AND claim_id IS NULL ORDER BY position", c.ID, pushed, c.Total)
	}
	if err != nil {
		return fmt.Errorf("campaigns: push %s: %w", c.ID, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	p := pusher{Applier: a, c: c, pushed: pushed, upto: pushed, parked: parked.Packets()}
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
	p.upto = lastPosition(c) // the last ones may have owners
	return p.send(ctx)
}

// lastPosition is the position up to which Redis is told of packets. A shard is told of those that it has when it is loaded, once: later
// ones come with its moves.
func lastPosition(c *models.Campaign) int64 {
	if models.IsShardID(c.ID) {
		return models.PacketsMax
	}
	return c.Total
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

	parked map[string]bool // packets of parked claims: they were given to a user
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
	if row.position > p.pushed && !p.parked[row.packet.ID] {
		p.run = append(p.run, row)
		p.releaseMs = at
		p.upto = row.position
	}
	return nil
}

// send sends the run to Redis, without what another pusher has sent meanwhile.
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
