package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

// counter is shared by most strategies: the stock, and the users
// who have a unit.
type counter struct{ Env }

type (
	claimFunc   func(c *counter, ctx context.Context, user string) (Outcome, error)
	prepareFunc func(c *counter, ctx context.Context) error
)

// function is a strategy without state in its process.
type function struct {
	counter

	claim   claimFunc
	prepare []prepareFunc
}

func direct(claim claimFunc, prepare ...prepareFunc) func(Env) (Strategy, error) {
	return func(env Env) (Strategy, error) {
		return &function{counter: counter{env}, claim: claim, prepare: prepare}, nil
	}
}

// Prepare runs the preparations in order.
func (s *function) Prepare(ctx context.Context) error {
	for _, prepare := range s.prepare {
		if err := prepare(&s.counter, ctx); err != nil {
			return fmt.Errorf("lab: prepare: %w", err)
		}
	}
	return nil
}

// Claim calls the function.
func (s *function) Claim(ctx context.Context, user string) (Outcome, error) {
	return s.claim(&s.counter, ctx, user)
}

// Close has nothing to close.
func (*function) Close() error { return nil }

// prepareStock writes the stock to Redis and deletes users, lock and list.
func (c *counter) prepareStock(ctx context.Context) error {
	err := c.Redis.Del(ctx, c.usersKey(), c.lockKey(), c.takenKey()).Err()
	if err != nil {
		return err
	}
	return c.Redis.Set(ctx, c.stockKey(), c.Campaign.Units, 0).Err()
}

// preload makes Redis compile scripts before the first claim.
func preload(scripts ...*redis.Script) prepareFunc {
	return func(c *counter, ctx context.Context) error {
		for _, script := range scripts {
			if err := script.Load(ctx, c.Redis).Err(); err != nil {
				return err
			}
		}
		return nil
	}
}

// read gets the stock and whether a user has a unit, in one
// round trip, and decides.
func (c *counter) read(ctx context.Context, rdb redis.Cmdable, user string) (int64, Outcome, error) {
	var stockCmd *redis.StringCmd
	var hadCmd *redis.BoolCmd
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		stockCmd = p.Get(ctx, c.stockKey())
		hadCmd = p.HExists(ctx, c.usersKey(), user)
		return nil
	})
	if err != nil {
		return 0, "", fmt.Errorf("lab: read: %w", err)
	}
	stock, err := stockCmd.Int64()
	if err != nil {
		return 0, "", fmt.Errorf("lab: read stock: %w", err)
	}
	err = c.at(StepRead)
	switch {
	case err != nil:
		return 0, "", err
	case stock < 1:
		return stock, SoldOut, nil
	case hadCmd.Val():
		return stock, OverLimit, nil
	default:
		return stock, Claimed, nil
	}
}

// sell is read-then-write: every reader of 1 sells 1. It writes the computed
// value, in two round trips. It is correct only without concurrent claims.
func (c *counter) sell(ctx context.Context, user string) (Outcome, error) {
	stock, outcome, err := c.read(ctx, c.Redis, user)
	if err != nil || outcome != Claimed {
		return outcome, err
	}
	_, err = c.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, c.stockKey(), stock-1, 0)
		p.HSet(ctx, c.usersKey(), user, 1)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("lab: write: %w", err)
	}
	return Claimed, c.at(StepWritten)
}

func newMutex(env Env) (Strategy, error) {
	var mu sync.Mutex
	return direct(func(c *counter, ctx context.Context, user string) (Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		return c.sell(ctx, user)
	}, (*counter).prepareStock)(env)
}

// sellPipelined reads in one round trip and updates in another, with commands
// that add rather than overwrite. Others may write in between.
func (c *counter) sellPipelined(ctx context.Context, user string) (Outcome, error) {
	_, outcome, err := c.read(ctx, c.Redis, user)
	if err != nil || outcome != Claimed {
		return outcome, err
	}
	_, err = c.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Decr(ctx, c.stockKey())
		p.HIncrBy(ctx, c.usersKey(), user, 1)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("lab: take: %w", err)
	}
	return Claimed, nil
}

// sellWatched is optimistic: EXEC does nothing if a read key was
// changed. It then retries until patience ends.
func (c *counter) sellWatched(ctx context.Context, user string) (Outcome, error) {
	deadline := time.Now().Add(c.Patience)
	for time.Now().Before(deadline) {
		outcome, err := c.tryWatched(ctx, user)
		if !errors.Is(err, redis.TxFailedErr) {
			return outcome, err
		}
		if err := sleep.For(ctx, c.pause()); err != nil {
			return Busy, err
		}
	}
	return Busy, nil
}

func (c *counter) tryWatched(ctx context.Context, user string) (outcome Outcome, err error) {
	err = c.Redis.Watch(ctx, func(tx *redis.Tx) error {
		_, outcome, err = c.read(ctx, tx, user)
		if err != nil || outcome != Claimed {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Decr(ctx, c.stockKey())
			p.HIncrBy(ctx, c.usersKey(), user, 1)
			p.RPush(ctx, c.takenKey(), user)
			return nil
		})
		return err
	}, c.stockKey(), c.usersKey())
	if err != nil {
		return "", fmt.Errorf("lab: watch: %w", err)
	}
	return outcome, nil
}
