package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

var (
	//go:embed lua_update.lua
	luaUpdateSource string
	//go:embed red_packet.lua
	redPacketSource string

	luaUpdate = redis.NewScript(luaUpdateSource)
	redPacket = redis.NewScript(redPacketSource)

	prepareLua = []prepareFunc{(*counter).prepareRow, preload(luaUpdate), (*counter).prepareStock}
)

func (c *counter) take(ctx context.Context, user string) (Outcome, error) {
	reply, err := luaUpdate.Run(ctx, c.Redis, []string{c.stockKey(), c.usersKey()}, user).Text()
	if err != nil {
		return "", fmt.Errorf("lab: script: %w", err)
	}
	if Outcome(reply) == Claimed {
		err = c.at(StepWritten)
	}
	return Outcome(reply), err
}

// takeAndUpdate is the middle way of the batch stock article: a
// script takes the unit, and one UPDATE stores it.
func (c *counter) takeAndUpdate(ctx context.Context, user string) (Outcome, error) {
	outcome, err := c.take(ctx, user)
	if err != nil || outcome != Claimed {
		return outcome, err
	}
	return Claimed, c.bookOne(ctx)
}

// preparePackets pushes the packets: id and amount, in minor units.
func (c *counter) preparePackets(ctx context.Context) error {
	err := c.Redis.Del(ctx, c.packetsKey(), c.takenKey(), c.usersKey()).Err()
	if err != nil {
		return err
	}
	_, err = c.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for from := int64(0); from < c.Campaign.Units; from += rowsAtOnce {
			var batch []any
			for n := from; n < min(from+rowsAtOnce, c.Campaign.Units); n++ {
				batch = append(batch, fmt.Sprintf(`{"id":"%d","amount":%d}`, n, 100+n%100))
			}
			p.RPush(ctx, c.packetsKey(), batch...)
		}
		return nil
	})
	return err
}

// takePacket takes one packet per call from a prepared list, by the red
// packet article's script. A user's retry gets the first packet again.
func (c *counter) takePacket(ctx context.Context, user string) (Outcome, error) {
	keys := []string{c.packetsKey(), c.usersKey(), c.takenKey()}
	reply, err := redPacket.Run(ctx, c.Redis, keys, user).StringSlice()
	if err != nil || len(reply) != 2 {
		return "", fmt.Errorf("lab: script: %w", err)
	}
	if Outcome(reply[0]) == Claimed {
		err = c.at(StepWritten)
	}
	return Outcome(reply[0]), err
}

// flushInterval is the time between MySQL updates: the default
// of Dibs' own flushes.
const flushInterval = 50 * time.Millisecond

// flusher takes like takeAndUpdate, but flush writes MySQL's
// row: once an interval, and at the end.
type flusher struct {
	function

	flush flushFunc
	sum   atomic.Int64 // units taken since writeSum, known to this process only
	stop  context.CancelFunc
	ended sync.WaitGroup
}

type flushFunc func(*flusher, context.Context) error

func flushed(flush flushFunc) func(Env) (Strategy, error) {
	return func(env Env) (Strategy, error) { return newFlusher(env, flush, flushInterval), nil }
}

// newFlusher calls flush once an interval. After an error the
// next flush, or Close, retries.
func newFlusher(env Env, flush flushFunc, every time.Duration) *flusher {
	s := &flusher{function: function{counter: counter{env}, prepare: prepareLua}, flush: flush}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.ended.Go(func() {
		for sleep.For(ctx, every) == nil {
			_ = s.flushNow()
		}
	})
	return s
}

// Claim takes in Redis and adds to the sum.
func (s *flusher) Claim(ctx context.Context, user string) (Outcome, error) {
	outcome, err := s.take(ctx, user)
	if err == nil && outcome == Claimed {
		s.sum.Add(1)
	}
	return outcome, err
}

// Close flushes a last time.
func (s *flusher) Close() error {
	s.stop()
	s.ended.Wait()
	return s.flushNow()
}

// flushNow is not cancelled by Close: an interrupted UPDATE may
// have happened.
func (s *flusher) flushNow() error {
	ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
	defer cancel()
	return s.flush(s, ctx)
}

// Settle waits until MySQL's row equals Redis' rest.
func (s *flusher) Settle(ctx context.Context) error {
	return settle(ctx, func(ctx context.Context) (bool, error) {
		left, err := s.left(ctx)
		if err != nil {
			return false, err
		}
		var row int64
		const remaining = "SELECT remaining FROM lab_stock WHERE campaign_id = ?"
		err = s.DB.QueryRowContext(ctx, remaining, s.Campaign.ID).Scan(&row)
		return row == left, err
	})
}

// writeSum is the batch stock article's idea: each process sums
// what it took, and subtracts the sum from the row. After an
// error the sum is kept for the next flush.
func (s *flusher) writeSum(ctx context.Context) error {
	sum := s.sum.Swap(0)
	if sum == 0 {
		return nil
	}
	const subtract = "UPDATE lab_stock SET remaining = remaining - ? WHERE campaign_id = ?"
	if _, err := s.DB.ExecContext(ctx, subtract, sum, s.Campaign.ID); err != nil {
		s.sum.Add(sum)
		return fmt.Errorf("lab: flush: %w", err)
	}
	return nil
}

// copyLeft overwrites the row with Redis' rest.
func (s *flusher) copyLeft(ctx context.Context) error {
	left, err := s.left(ctx)
	if errors.Is(err, redis.Nil) {
		return nil // an unknown stock is not zero
	}
	if err != nil {
		return err
	}
	return s.overwrite(ctx, left)
}

// left returns Redis' rest. redis.Nil: Redis lacks the campaign.
func (s *flusher) left(ctx context.Context) (int64, error) {
	return s.Redis.Get(ctx, s.stockKey()).Int64()
}

func (s *flusher) overwrite(ctx context.Context, left int64) error {
	const overwrite = "UPDATE lab_stock SET remaining = ? WHERE campaign_id = ?"
	_, err := s.DB.ExecContext(ctx, overwrite, left, s.Campaign.ID)
	return err
}
