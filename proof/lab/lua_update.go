package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// ErrBooks says that Redis and MySQL differ.
var ErrBooks = errors.New("lab: the books differ")

//go:embed lua_update.lua
var luaUpdateSource string

// luaUpdate is the middle of the batch stock article's ladder: a script takes the unit, and one UPDATE books it.
type luaUpdate struct {
	counter

	script *redis.Script
}

func luaUpdateStrategy() Entry {
	return Entry{
		Name: "lua-update", Title: "Lua, then one UPDATE a claim", Sound: true, DieAt: StepWritten,
		Flaw: "who dies between the two leaves books that differ; one commit after another on one row",
		New:  func(env Env) (Strategy, error) { return newLuaUpdate(env), nil },
	}
}

func newLuaUpdate(env Env) *luaUpdate {
	return &luaUpdate{counter: counter{env}, script: redis.NewScript(luaUpdateSource)}
}

// Prepare writes the stock to both and has Redis compile the script.
func (s *luaUpdate) Prepare(ctx context.Context) error {
	if err := s.prepareRow(ctx); err != nil {
		return err
	}
	if err := s.script.Load(ctx, s.Redis).Err(); err != nil {
		return fmt.Errorf("lab: preload: %w", err)
	}
	return s.counter.Prepare(ctx)
}

// take takes in Redis.
func (s *luaUpdate) take(ctx context.Context, user string) (Outcome, error) {
	keys := []string{s.stockKey(), s.usersKey()}
	code, err := s.script.Run(ctx, s.Redis, keys, user, s.Campaign.PerUser).Int()
	if err != nil {
		return 0, fmt.Errorf("lab: script: %w", err)
	}
	if Outcome(code) == Claimed {
		err = s.at(StepWritten)
	}
	return Outcome(code), err
}

// Claim takes in Redis, then in MySQL.
func (s *luaUpdate) Claim(ctx context.Context, user string) (Outcome, error) {
	outcome, err := s.take(ctx, user)
	if err != nil || outcome != Claimed {
		return outcome, err
	}
	taken, err := takeOne(ctx, s.DB, s.Campaign.ID)
	if err == nil && !taken {
		err = fmt.Errorf("%w: redis sold what mysql does not have", ErrBooks)
	}
	return Claimed, err
}
