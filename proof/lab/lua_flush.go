package lab

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// flushInterval is how often a row in MySQL follows what a process took in Redis: the default of Dibs' own flushes.
const flushInterval = 50 * time.Millisecond

// luaFlush takes with luaUpdate's script. MySQL's row is written by flush: once an interval, and at the end.
type luaFlush struct {
	*luaUpdate

	flush func(context.Context) error
	stop  context.CancelFunc
	ended chan struct{}
}

// start calls flush once an interval. An error is left to the next flush, and to Close.
func (s *luaFlush) start(every time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		for ticker := time.NewTicker(every); ; {
			select {
			case <-ticker.C:
				_ = s.flush(ctx)
			case <-ctx.Done():
				ticker.Stop()
				return
			}
		}
	}()
}

// Close flushes for the last time.
func (s *luaFlush) Close() error {
	s.stop()
	<-s.ended
	ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
	defer cancel()
	return s.flush(ctx)
}

// Settle waits until MySQL's row is what Redis has left.
func (s *luaFlush) Settle(ctx context.Context) error {
	return settle(ctx, func(ctx context.Context) (bool, error) {
		left, err := s.Redis.Get(ctx, s.stockKey()).Int64()
		if err != nil {
			return false, fmt.Errorf("lab: stock: %w", err)
		}
		var row int64
		err = s.DB.QueryRowContext(ctx, "SELECT remaining FROM lab_stock WHERE campaign_id = ?", s.Campaign.ID).Scan(&row)
		return row == left, err
	})
}

// sumFlush is the batch stock article's idea: each process adds up what it took, and writes the sum.
type sumFlush struct {
	luaFlush

	sum atomic.Int64 // units taken since the last flush; only this process knows of them
}

func sumFlushStrategy() Entry {
	return Entry{
		Name: "sum-flush", Title: "Lua, a sum in each process, one UPDATE a flush", Sound: true, DieAt: StepWritten,
		Flaw: "who dies takes its sum along, and MySQL has too much for ever",
		New:  func(env Env) (Strategy, error) { return newSumFlush(env, flushInterval), nil },
	}
}

func newSumFlush(env Env, every time.Duration) *sumFlush {
	s := &sumFlush{luaFlush: luaFlush{luaUpdate: newLuaUpdate(env)}}
	s.flush = s.write
	s.start(every)
	return s
}

// Claim takes in Redis and adds to the sum.
func (s *sumFlush) Claim(ctx context.Context, user string) (Outcome, error) {
	outcome, err := s.take(ctx, user)
	if err == nil && outcome == Claimed {
		s.sum.Add(1)
	}
	return outcome, err
}

// write subtracts the sum from the row. After an error the sum is kept for the next flush.
func (s *sumFlush) write(ctx context.Context) error {
	sum := s.sum.Swap(0)
	if sum == 0 {
		return nil
	}
	_, err := s.DB.ExecContext(ctx, "UPDATE lab_stock SET remaining = remaining - ? WHERE campaign_id = ?", sum, s.Campaign.ID)
	if err != nil {
		s.sum.Add(sum)
		return fmt.Errorf("lab: flush: %w", err)
	}
	return nil
}

// copyStock copies what Redis has left over the row.
type copyStock struct{ luaFlush }

func copyStockStrategy() Entry {
	return Entry{
		Name: "copy-stock", Title: "Lua, Redis' stock copied into the row", Sound: true, DieAt: StepWritten,
		Flaw: "a copy overwrites what others wrote to the row, and a late copy overwrites a newer one",
		New:  func(env Env) (Strategy, error) { return newCopyStock(env, flushInterval), nil },
	}
}

func newCopyStock(env Env, every time.Duration) *copyStock {
	s := &copyStock{luaFlush{luaUpdate: newLuaUpdate(env)}}
	s.flush = func(ctx context.Context) error {
		left, err := s.left(ctx)
		if err != nil {
			return err
		}
		return s.write(ctx, left)
	}
	s.start(every)
	return s
}

// Claim takes in Redis.
func (s *copyStock) Claim(ctx context.Context, user string) (Outcome, error) {
	return s.take(ctx, user)
}

// unknownStock is the stock of a campaign that Redis does not have.
const unknownStock = -1

func (s *copyStock) left(ctx context.Context) (int64, error) {
	left, err := s.Redis.Get(ctx, s.stockKey()).Int64()
	if errors.Is(err, redis.Nil) {
		return unknownStock, nil
	}
	if err != nil {
		return unknownStock, fmt.Errorf("lab: stock: %w", err)
	}
	return left, nil
}

func (s *copyStock) write(ctx context.Context, left int64) error {
	if left == unknownStock {
		return nil
	}
	_, err := s.DB.ExecContext(ctx, "UPDATE lab_stock SET remaining = ? WHERE campaign_id = ?", left, s.Campaign.ID)
	if err != nil {
		return fmt.Errorf("lab: copy: %w", err)
	}
	return nil
}
