package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// counter is what most strategies on Redis share: the stock, and what each user has had.
type counter struct{ Env }

// Prepare writes the stock.
func (c *counter) Prepare(ctx context.Context) error {
	if err := c.Redis.Del(ctx, c.usersKey(), c.lockKey()).Err(); err != nil {
		return fmt.Errorf("lab: prepare: %w", err)
	}
	if err := c.Redis.Set(ctx, c.stockKey(), c.Campaign.Units, 0).Err(); err != nil {
		return fmt.Errorf("lab: prepare: %w", err)
	}
	return nil
}

// Close has nothing to let go of.
func (*counter) Close() error { return nil }

// read asks, in one round trip, for the stock and for what a user has had.
func (c *counter) read(ctx context.Context, rdb redis.Cmdable, user string) (stock, had int64, err error) {
	var stockCmd, hadCmd *redis.StringCmd
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		stockCmd = p.Get(ctx, c.stockKey())
		hadCmd = p.HGet(ctx, c.usersKey(), user)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, 0, fmt.Errorf("lab: read: %w", err)
	}
	stock, err = stockCmd.Int64()
	if err != nil {
		return 0, 0, fmt.Errorf("lab: read stock: %w", err)
	}
	had, err = hadCmd.Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, 0, fmt.Errorf("lab: read user: %w", err)
	}
	return stock, had, nil
}

// decide is the rule of every strategy: a unit is left, and the user may have one more.
func (c *counter) decide(stock, had int64) Outcome {
	switch {
	case stock < 1:
		return SoldOut
	case c.Campaign.PerUser > 0 && had >= c.Campaign.PerUser:
		return OverLimit
	default:
		return Claimed
	}
}

// sell reads, decides, and writes what it worked out, in two round trips. Right as long as no one else does it in the meantime.
func (c *counter) sell(ctx context.Context, user string) (Outcome, error) {
	stock, had, err := c.read(ctx, c.Redis, user)
	if err != nil {
		return 0, err
	}
	if err := c.at(StepRead); err != nil {
		return 0, err
	}
	if outcome := c.decide(stock, had); outcome != Claimed {
		return outcome, nil
	}
	_, err = c.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, c.stockKey(), stock-1, 0)
		p.HSet(ctx, c.usersKey(), user, had+1)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("lab: write: %w", err)
	}
	return Claimed, c.at(StepWritten)
}
