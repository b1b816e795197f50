package lua

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"dibs/models"
)

// ShardView is what Redis holds of a shard of a campaign at one moment. Err is ErrAbsent for one
// that Redis does not hold, or that takes no claims (its numbers are set nevertheless), ErrDamaged,
// or that of a Redis that is away.
type ShardView struct {
	Position
	Shares

	Status       models.Status
	Total, Taken int64
	Err          error
}

// Shares are what a shard counts of the units that it exchanges with others. They only rise.
type Shares struct {
	Out int64 // units that were debited for other shards
	In  int64 // units that were credited from other shards
	Ups int64 // how often units became free: credits, raises of the total and releases
}

// Free is the units that can be claimed in the shard.
func (v *ShardView) Free() int64 { return max(0, v.Total-v.Taken) }

// Lacks is how many units users have of the shard more than it has.
func (v *ShardView) Lacks() int64 { return max(0, v.Taken-v.Total) }

// IsSame reports whether no unit became free in the shard between an earlier view and this one.
func (v *ShardView) IsSame(o *ShardView) bool {
	return v.Err == nil && o.Err == nil && v.Epoch == o.Epoch && v.Version == o.Version && v.Ups == o.Ups && !v.Before(o.Position)
}

// Shards reads lots, each at one moment, in one round trip to each server. One whose server does
// not answer in time has an error of its own.
func (s *Scripts) Shards(ctx context.Context, ids []string) []ShardView {
	commands := make([]*redis.MapStringStringCmd, len(ids))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, id := range ids {
			commands[i] = p.HGetAll(ctx, s.KeysOf(id).State)
		}
		return nil
	})
	views := make([]ShardView, len(ids))
	for i, command := range commands {
		views[i] = shardView(ids[i], command)
	}
	return views
}

func shardView(id string, command *redis.MapStringStringCmd) (v ShardView) {
	values, err := command.Result()
	switch {
	case err != nil && isWrongType(err):
		return ShardView{Err: fmt.Errorf("%w: %s", ErrDamaged, id)}
	case values == nil: // while a server hangs, go-redis fails commands that others have answered
		return ShardView{Err: classifyError("hgetall", err)}
	case len(values) == 0:
		return ShardView{Err: fmt.Errorf("%w: %s", ErrAbsent, id)}
	}
	f := &fields{text: values}
	v = ShardView{
		Position: Position{Epoch: f.number("epoch"), Seq: f.number("seq"), Version: f.number("version")},
		Shares:   sharesOf(f), Status: models.Status(values["status"]), Total: f.total(id), Taken: f.number("taken"),
	}
	switch {
	case f.err != nil:
		v.Err = fmt.Errorf("%w: %s: %w", ErrDamaged, id, f.err)
	case v.Status == models.StatusLoading, v.Status == models.StatusFenced:
		v.Err = fmt.Errorf("%w: %s is %s", ErrAbsent, id, v.Status)
	}
	return v
}

func sharesOf(f *fields) Shares {
	return Shares{Out: f.number("out"), In: f.number("in"), Ups: f.number("ups")}
}
