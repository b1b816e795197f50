package lua

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"dibs/models"
)

// ShardView is Redis' state of a shard at one moment. Err is ErrAbsent
// if it is missing, or away (then with numbers), ErrDamaged, or the
// error of an unavailable Redis.
type ShardView struct {
	Position
	Shares

	Status       models.Status
	Version      int64
	Total, Taken int64
	Err          error
}

// Shares count the units that a shard exchanges with others. They only rise.
type Shares struct {
	Out int64 // units debited for other shards
	In  int64 // units credited from other shards
	Ups int64 // how often units became free: credits, raises and releases
}

// Free returns the units that can be claimed.
func (v *ShardView) Free() int64 { return max(0, v.Total-v.Taken) }

// Lacks returns the units by which claims exceed the shard's total.
func (v *ShardView) Lacks() int64 { return max(0, v.Taken-v.Total) }

// IsSame reports whether no unit of the shard became free between an
// earlier view and this one.
func (v *ShardView) IsSame(o *ShardView) bool {
	return v.Err == nil && o.Err == nil && v.Epoch == o.Epoch && v.Version == o.Version && v.Ups == o.Ups &&
		!v.IsBehind(o.Position)
}

// Shards reads lots, each at one moment, in one round trip per server.
// A lot whose server does not answer has an error of its own.
func (s *Scripts) Shards(ctx context.Context, ids []string) []ShardView {
	commands := make([]*redis.MapStringStringCmd, len(ids))
	generations := make([]*redis.StringCmd, len(ids))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, id := range ids {
			k := s.KeysOf(id)
			commands[i] = p.HGetAll(ctx, k.State)
			generations[i] = p.HGet(ctx, k.Signals, "generation")
		}
		return nil
	})
	views := make([]ShardView, len(ids))
	for i, command := range commands {
		views[i] = shardView(ids[i], command, generations[i])
	}
	return views
}

func shardView(id string, command *redis.MapStringStringCmd, generation *redis.StringCmd) (v ShardView) {
	values, err := command.Result()
	switch {
	case err != nil && isWrongType(err):
		return ShardView{Err: fmt.Errorf("%w: %s", ErrDamaged, id)}
	case values == nil: // if one server stalls, go-redis fails answered commands too
		return ShardView{Err: classifyError("hgetall", err)}
	case generation.Err() != nil && !errors.Is(generation.Err(), redis.Nil):
		return ShardView{Err: classifyError("hget", generation.Err())}
	case values["epoch"] == "":
		return ShardView{Err: fmt.Errorf("%w: %s", ErrAbsent, id)}
	}
	f := &fields{text: values}
	v = ShardView{
		Position: Position{Epoch: f.number("epoch"), Seq: f.number("seq"), Units: f.number("sold")},
		Version:  f.number("version"), Shares: sharesOf(f), Status: models.Status(values["status"]),
		Total: f.total(id), Taken: f.number("taken"),
	}
	switch {
	case f.err != nil:
		v.Err = fmt.Errorf("%w: %s: %w", ErrDamaged, id, f.err)
	case isAway(values, generation.Val()):
		v.Err = fmt.Errorf("%w: %s is loaded, or has to be", ErrAbsent, id)
	}
	return v
}

// isAway is shared/away.lua in Go, by the fields
// of a state and the partition's generation.
func isAway(fields map[string]string, generation string) bool {
	_, hasToken := fields["token"]
	return hasToken || fields["generation"] != cmp.Or(generation, "0")
}

func sharesOf(f *fields) Shares {
	return Shares{Out: f.number("out"), In: f.number("in"), Ups: f.number("ups")}
}
