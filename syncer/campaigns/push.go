package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/parking"

	"gorm.io/gorm"
)

// PublishPackets appends a lot's packets to its claim stream, and returns
// the last position. Until then no packet can be taken.
func (s Sender) PublishPackets(ctx context.Context, c *models.Campaign) (last int64, err error) {
	campaignID, shard := models.SplitShardID(c.ID)
	db := s.db.WithContext(ctx)
	var published int64
	err = db.Raw("SELECT told_position FROM lots WHERE id = ?", c.ID).Scan(&published).Error
	if err != nil {
		return 0, fmt.Errorf("campaigns: packets of %s: %w", c.ID, err)
	}
	var batches []models.PacketBatchRow
	err = db.Where("campaign_id = ? AND first_position + packets > ?", campaignID, published+1).
		Order("first_position").Find(&batches).Error
	if err != nil {
		return 0, fmt.Errorf("campaigns: packets of %s: %w", c.ID, err)
	}
	last = published
	for _, batch := range batches {
		end := batch.FirstPosition + batch.Packets - 1
		for last < end {
			pushed := event.PushedPackets{Batch: batch, Upto: end}
			err := db.Table("packets").
				Where("campaign_id = ? AND shard = ? AND position > ? AND position <= ?", campaignID, shard, last, end).
				Order("position").Limit(lua.PushMax).Find(&pushed.Packets).Error
			if err != nil {
				return 0, fmt.Errorf("campaigns: packets of %s: %w", c.ID, err)
			}
			if n := len(pushed.Packets); n == lua.PushMax {
				pushed.Upto = pushed.Packets[n-1].Position
			}
			row, err := NewOutboxRow(stored.OutboxEvent, &event.Event{
				Type: event.PacketsPushed, CampaignID: campaignID, Shard: shard, Pushed: &pushed, MadeMs: c.CreatedAt.UnixMilli(),
			})
			if err != nil {
				return 0, err
			}
			if err := s.scripts.Append(ctx, c.ID, row.ID, row.Payload); err != nil {
				return 0, err
			}
			s.steps.At("published")
			last = pushed.Upto
		}
	}
	return last, nil
}

// push sends Redis a lot's free packets up to last that it lacks. None
// of them can be taken before: earlier loads are removed, and this one
// lacks them. Concurrent or failed pushes do no harm, as Redis takes
// each position once, in order.
func (s Sender) push(ctx context.Context, c *models.Campaign, state *lua.State, last int64) error {
	if state.Pushed >= last {
		return nil
	}
	parked, err := parking.Read(ctx, s.db, c.ID)
	if err != nil {
		return err
	}
	p := pusher{Sender: s, c: c, epoch: state.Epoch, pushed: state.Pushed, upto: state.Pushed, not: parked.Packets()}
	if err := p.addAll(ctx, last); err != nil {
		return fmt.Errorf("campaigns: push %s: %w", c.ID, err)
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	p.upto = last // the last packets may have owners
	return p.send(ctx)
}

// ByPosition makes a query on packets use the index of positions.
func ByPosition(on *gorm.DB) string { return sqlstore.ByIndex(on, "packets_place") }

type pusher struct {
	Sender

	c         *models.Campaign
	epoch     int64 // of the load
	pushed    int64 // Redis has the packets up to this position
	upto      int64 // position of the last packet of the run
	releaseMs int64
	run       []pushRow
	packets   []models.Packet // of one call

	not map[string]bool // packets of parked claims, which have owners
}

type pushRow struct {
	position  int64
	packet    models.Packet
	releaseMs int64
	returned  bool
}

func (p *pusher) addAll(ctx context.Context, last int64) error {
	campaignID, shard := models.SplitShardID(p.c.ID)
	query := "SELECT position, id, amount, release_at, returned_at IS NOT NULL FROM packets" + ByPosition(p.db) +
		" WHERE campaign_id = ? AND shard = ? AND position > ? AND position <= ? AND claim_id IS NULL ORDER BY position"
	return sqlstore.ScanAll(ctx, p.db, query, []any{campaignID, shard, p.pushed, last},
		func(scan func(...any) error) error {
			var row pushRow
			var release sql.NullTime
			err := scan(&row.position, &row.packet.ID, &row.packet.Amount, &release, &row.returned)
			if err != nil || p.not[row.packet.ID] {
				return err
			}
			row.releaseMs = ReleaseMs(release)
			return p.add(ctx, row)
		})
}

func (p *pusher) add(ctx context.Context, row pushRow) error {
	if len(p.run) == lua.PushMax || len(p.run) > 0 && row.releaseMs != p.releaseMs {
		if err := p.send(ctx); err != nil {
			return err
		}
	}
	if row.position > p.pushed {
		p.run = append(p.run, row)
		p.releaseMs = row.releaseMs
		p.upto = row.position
	}
	return nil
}

func (p *pusher) send(ctx context.Context) error {
	for p.pushed < p.upto {
		call := lua.Push{Epoch: p.epoch, After: p.pushed, Upto: p.upto, ReleaseMs: p.releaseMs, Packets: p.packets[:0]}
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
			return fmt.Errorf("%w: %s: packets up to %d were sent to redis, it holds those up to %d",
				ErrMoved, p.c.ID, p.pushed, at)
		}
		p.pushed = at
		p.packets = call.Packets
		p.steps.At("pushed")
	}
	p.run = p.run[:0]
	return nil
}
