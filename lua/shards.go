package lua

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"dibs/models"
)

// Transfers are what a lot counts of each peer, by its number: the units that it ever debited for it, those that it ever was credited from
// it, and the load of the peer whose credits it takes.
type Transfers struct{ Out, In, Load map[int]int64 }

// transfersOf reads the fields of a state.
func transfersOf(f *fields) Transfers {
	t := Transfers{Out: make(map[int]int64), In: make(map[int]int64), Load: make(map[int]int64)}
	for name := range f.text {
		what, number, isPeer := strings.Cut(name, ":")
		if !isPeer {
			continue
		}
		peer, err := strconv.Atoi(number)
		if err != nil {
			f.refuse(name, err)
		}
		switch what {
		case "out":
			t.Out[peer] = f.number(name)
		case "in":
			t.In[peer] = f.number(name)
		case "load":
			t.Load[peer] = f.number(name)
		}
	}
	return t
}

// args are the fields of a state.
func (t *Transfers) args() (args []any) {
	for name, of := range map[string]map[int]int64{"out:": t.Out, "in:": t.In, "load:": t.Load} {
		for _, peer := range slices.Sorted(maps.Keys(of)) {
			args = append(args, name+strconv.Itoa(peer), of[peer])
		}
	}
	return args
}

// Pair are two lots, units of which go from one to the other.
type Pair struct{ From, To int }

// InFlight are the units that lots have debited for each other and that were not credited yet. Below 0 a lot forgot what it debited. Of a
// lot that Redis does not hold, whose Transfers are zero, nothing is known.
func InFlight(lots map[int]Transfers) map[Pair]int64 {
	flying := make(map[Pair]int64)
	for from, giver := range lots {
		for to, taker := range lots {
			if n := giver.Out[to] - taker.In[from]; n != 0 && giver.Out != nil && taker.In != nil {
				flying[Pair{From: from, To: to}] = n
			}
		}
	}
	return flying
}

// ShardView is what Redis holds of a lot of a campaign of several shards at one moment. Err is ErrAbsent for one that Redis does not hold,
// or that takes no claims (its numbers are set nevertheless), ErrDamaged, or that of a Redis that is away.
type ShardView struct {
	Position
	Transfers

	Status                  models.Status
	Ups, Total, Taken, Owed int64
	Err                     error
}

// Free is the units that can be claimed in the lot.
func (v *ShardView) Free() int64 { return max(0, v.Total-v.Taken) }

// Lacks is how many units the lot has sold more than it has.
func (v *ShardView) Lacks() int64 { return max(0, v.Taken+v.Owed-v.Total) }

// IsSame reports whether no unit became free in the lot between an earlier view and this one.
func (v *ShardView) IsSame(o *ShardView) bool {
	return v.Err == nil && o.Err == nil && v.Epoch == o.Epoch && v.Version == o.Version && v.Ups == o.Ups && !v.Before(o.Position)
}

// Shards reads lots, each at one moment, in one round trip to each server. One whose server does not answer in time has an error of its
// own.
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
		Position:  Position{Epoch: f.number("epoch"), Seq: f.number("seq"), TSeq: f.number("tseq"), Version: f.number("version")},
		Transfers: transfersOf(f), Status: models.Status(values["status"]), Ups: f.number("ups"), Total: f.number("total"),
		Taken: f.number("taken"), Owed: f.number("owed"),
	}
	switch {
	case f.err != nil:
		v.Err = fmt.Errorf("%w: %s: %w", ErrDamaged, id, f.err)
	case v.Status == models.StatusLoading, v.Status == models.StatusFenced:
		v.Err = fmt.Errorf("%w: %s is %s", ErrAbsent, id, v.Status)
	}
	return v
}

// Servers are the names of the runs of the servers that hold lots. A server that does not tell has none; one that does not answer has none
// either, and err says why.
func (s *Scripts) Servers(ctx context.Context, ids []string) (runs []string, err error) {
	known := make(map[*redis.Client]string)
	runs = make([]string, len(ids))
	for i, id := range ids {
		node, nodeErr := s.nodeOf(ctx, s.KeysOf(id).State)
		if nodeErr != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, nodeErr)
			continue
		}
		if _, isKnown := known[node]; !isKnown {
			info, infoErr := Info(ctx, node, "server")
			if infoErr != nil && !strings.Contains(infoErr.Error(), "is not supported") { // the embedded server
				err = classifyError("info", infoErr)
			}
			known[node] = info["run_id"]
		}
		runs[i] = known[node]
	}
	return runs, err
}
