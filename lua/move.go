package lua

import (
	"context"
	"fmt"
)

// Debit takes free units out of a shard,
// for another shard or out of the total.
type Debit struct {
	Move  string // the id of the move
	Shard string // the id of the giver
	Epoch int64  // its load, as it was read
	To    int    // the taker's number; 0: the units leave the total
	Units int64  // wanted
	// claimed units too: the shard then refuses
	// claims until as many are returned
	Taken bool
}

// Debit takes up to d.Units free units, and returns how many. Errors:
// ErrAbsent, ErrOther, ErrDamaged, ErrUnavailable, ErrOutcomeUnknown
// (MySQL gets the move, or there is none).
func (s *Scripts) Debit(ctx context.Context, d *Debit) (units int64, err error) {
	k := s.KeysOf(d.Shard)
	taken := 0
	if d.Taken {
		taken = 1
	}
	keys := []string{k.State, k.Stream, k.Signals}
	return s.move(ctx, "debit", d.Shard, keys, []any{d.Epoch, d.To, d.Units, taken, d.Move, s.atText()})
}

// Credit adds the units of a move that MySQL has applied to a shard.
type Credit struct {
	Move  string
	Shard string // the id of the taker
	Epoch int64  // its load, by MySQL
	From  int    // the giver's number; 0: the total was raised
	Units int64
}

// Credit adds the units, once however often it is called. Errors as Debit.
func (s *Scripts) Credit(ctx context.Context, c *Credit) (units int64, err error) {
	k := s.KeysOf(c.Shard)
	keys := []string{k.State, k.Stream, k.Moves, k.Signals}
	return s.move(ctx, "credit", c.Shard, keys, []any{c.Epoch, c.From, c.Units, c.Move, s.atText()})
}

func (s *Scripts) move(ctx context.Context, name, id string, keys []string, args []any) (units int64, err error) {
	code, reply, err := s.run(ctx, name, keys, args)
	switch {
	case err != nil:
		return 0, err
	case code == statusElse:
		return 0, fmt.Errorf("%w: %s", ErrOther, id)
	case code != statusOK:
		return 0, refusal(name, id, keys, code, reply)
	}
	if len(reply) == 2 {
		units, _ = reply[1].(int64)
	}
	return units, nil
}
