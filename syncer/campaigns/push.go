package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"dibs/lua"
	"dibs/migrations"
	"dibs/models"
	"dibs/syncer/writer"
)

// push tells Redis of the packets that it does not know of: those behind position pushed which nobody took. None of them can be
// taken while this goes on, as no earlier load is left and this one was not told. Any number may push at once, and may die at
// any moment: Redis takes each position once, in order.
func (b Applier) push(ctx context.Context, c *models.Campaign, pushed int64) error {
	pool, err := b.Db.DB()
	if err != nil {
		return fmt.Errorf("syncer: push: %w", err)
	}
	parked, err := writer.ReadParked(ctx, pool, c.ID)
	if err != nil {
		return err
	}
	//nolint:gosec // the name of an index
	rows, err := pool.QueryContext(ctx, "SELECT position, id, amount, release_at, returned_at IS NOT NULL FROM packets"+
		ByPosition(b.Db.Name())+" WHERE campaign_id = ? AND position > ? AND position <= ? AND claim_id IS NULL ORDER BY position",
		c.ID, pushed, c.Total)
	if err != nil {
		return fmt.Errorf("syncer: push %s: %w", c.ID, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	p := pusher{Applier: b, c: c, pushed: pushed, upto: pushed, parked: parked.Packets()}
	for rows.Next() {
		if err := p.add(ctx, rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("syncer: push %s: %w", c.ID, err)
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	p.upto = c.Total // the last ones may be taken
	return p.send(ctx)
}

// byPosition has a query go by the positions of packets.
func ByPosition(dialect string) string {
	if dialect == migrations.SQLite {
		return " INDEXED BY packets_place"
	}
	return " FORCE INDEX (packets_place)"
}

// pusher makes runs of packets of one time of release.
type pusher struct {
	Applier

	c         *models.Campaign
	pushed    int64 // the position up to which Redis is told
	upto      int64 // the position up to which the run goes
	releaseMs int64
	run       []pushRow
	packets   []models.Packet // of one call

	parked map[string]bool // packets of claims that are parked: somebody was told that they are theirs
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
		return fmt.Errorf("syncer: push %s: %w", p.c.ID, err)
	}
	at := ReleaseMs(release)
	if len(p.run) == lua.PushMax || len(p.run) > 0 && at != p.releaseMs {
		if err := p.send(ctx); err != nil {
			return err
		}
	}
	if row.position > p.pushed && !p.parked[row.packet.ID] {
		p.run, p.releaseMs, p.upto = append(p.run, row), at, row.position
	}
	return nil
}

// send brings the run to Redis, but for what another pusher brought meanwhile.
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
		at, err := p.Scripts.Push(ctx, p.c.ID, &call)
		switch {
		case err != nil:
			return fmt.Errorf("syncer: push %s: %w", p.c.ID, err)
		case at < p.pushed:
			return fmt.Errorf("%w: %s: redis was told of packets up to %d and knows %d", ErrMoved, p.c.ID, p.pushed, at)
		}
		p.pushed, p.packets = at, call.Packets
		if p.PushStep != nil {
			p.PushStep()
		}
	}
	p.run = p.run[:0]
	return nil
}
