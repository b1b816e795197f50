package lua

import (
	"context"
	"fmt"

	"dibs/models"
)

// statusHeld is adjust.lua's word for a definition that is there already, or is older than what is there.
const statusHeld = 3

// statusOther is adjust.lua's word for another load than MySQL knows, and for a campaign that is fenced.
const statusOther = 4

// Adjust brings a changed definition to Redis, in force for the next claim, and returns the state after it. A version that
// Redis holds already changes nothing. Errors: ErrAbsent, ErrDamaged, ErrOther,
// ErrUnavailable, ErrOutcomeUnknown (safe to send again).
func (s *Scripts) Adjust(ctx context.Context, c *models.Campaign) (State, error) {
	keys := []string{s.KeysOf(c.ID).State}
	args := append([]any{c.Version, c.Epoch}, fixed(c)...)
	reply, err := s.run(ctx, s.adjust, keys, append(args, definition(c)...))
	if err != nil {
		return State{}, err
	}
	code, err := status("adjust", reply)
	if err != nil {
		return State{}, err
	}
	switch code {
	case statusOK, statusHeld:
		return s.State(ctx, c.ID)
	case statusAbsent:
		return State{}, fmt.Errorf("%w: %s", ErrAbsent, c.ID)
	case statusOther:
		return State{}, fmt.Errorf("%w: %s", ErrOther, c.ID)
	default:
		return State{}, damaged("adjust", keys, reply)
	}
}
