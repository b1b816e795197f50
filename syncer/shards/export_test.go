package shards

import (
	"context"

	"dibs/lua"
	"dibs/models"
)

// Observe has observe called at each step, see steps.Steps.
func (m *Mover) Observe(observe func(step string)) { m.steps.Observe(observe) }

// ReplaceMove has moves go to Redis another way.
func (m *Mover) ReplaceMove(move func(ctx context.Context, c *models.Campaign, m *models.StockMove) (int64, error)) {
	m.redis = &otherMove{m.redis, move}
}

type otherMove struct {
	redis

	move func(ctx context.Context, c *models.Campaign, m *models.StockMove) (int64, error)
}

func (o *otherMove) Shards(ctx context.Context, ids []string) []lua.ShardView {
	return o.redis.Shards(ctx, ids)
}

func (o *otherMove) Move(ctx context.Context, c *models.Campaign, m *models.StockMove) (int64, error) {
	return o.move(ctx, c, m)
}
