package lua

import (
	"context"
	"fmt"

	"dibs/models"
)

// Debit takes free units out of a shard, for another one or out of the campaign's total.
type Debit struct {
	Move  string // the id of the move
	Shard string // the id of the lot that gives
	Epoch int64  // its load, as it was read
	To    int    // the number of the shard that gets them; 0: they leave the total
	Units int64  // that are wanted
	Taken bool   // units that users have go, too: the shard refuses claims until as many came back
}

// Debit takes as many units as are free, and returns how many. Errors: ErrAbsent, ErrOther,
// ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (then MySQL gets the move, or there is none).
func (s *Scripts) Debit(ctx context.Context, d *Debit) (units int64, err error) {
	k := s.KeysOf(d.Shard)
	taken := 0
	if d.Taken {
		taken = 1
	}
	return s.move(ctx, s.debit, d.Shard, []string{k.State, k.Stream, k.Signals}, []any{d.Epoch, d.To, d.Units, taken, d.Move, s.atText()})
}

// Credit brings a shard the units of a move that MySQL has applied.
type Credit struct {
	Move  string
	Shard string // the id of the lot that takes
	Epoch int64  // its load, as MySQL knows it
	From  int    // the number of the shard that gave them; 0: the total was raised
	Units int64
}

// Credit brings a shard its units once, however often it is sent. Errors as Debit.
func (s *Scripts) Credit(ctx context.Context, c *Credit) (units int64, err error) {
	k := s.KeysOf(c.Shard)
	return s.move(ctx, s.credit, c.Shard, []string{k.State, k.Stream, k.Moves, k.Signals}, []any{c.Epoch, c.From, c.Units, c.Move, s.atText()})
}

func (s *Scripts) atText() string { return models.NewTime(s.opts.Clock()).Format(models.TimeLayout) }

func (s *Scripts) move(ctx context.Context, one script, id string, keys []string, args []any) (units int64, err error) {
	code, reply, err := s.ask(ctx, one, keys, args)
	switch {
	case err != nil:
		return 0, err
	case code == statusElse:
		return 0, fmt.Errorf("%w: %s", ErrOther, id)
	case code != statusOK:
		return 0, refusal(one.name, id, keys, code, reply)
	}
	if len(reply) == 2 {
		units, _ = reply[1].(int64)
	}
	return units, nil
}
