package lua

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/google/uuid"

	"dibs/models"
)

// statusHeld is adjust.lua's word for a definition that is there already, or is older than what is there.
const statusHeld = 3

// statusOther is adjust.lua's word for another load than MySQL knows, and for a campaign that is fenced.
const statusOther = 4

// ChangeID names a version of a campaign's definition, in the ids of the events that tell what the change crossed: whoever tells
// it, and however often, readers know it for the same. It is a UUIDv7, as versions are times.
func ChangeID(c *models.Campaign) string {
	sum := sha256.Sum256([]byte(c.ID + "\n" + formatInt(c.Version)))
	id := uuid.UUID(sum[:16])
	for i := range 6 {
		id[i] = byte(c.Version >> (40 - 8*i))
	}
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id.String()
}

// Adjust brings a changed definition to Redis, in force for the next claim, and returns the state after it. What the change
// itself crosses, low stock or sold out, is told in the same step. A version that Redis holds already changes nothing.
// Errors: ErrAbsent, ErrDamaged, ErrOther, ErrUnavailable, ErrOutcomeUnknown (safe to send again).
func (s *Scripts) Adjust(ctx context.Context, c *models.Campaign) (State, error) {
	k := s.KeysOf(c.ID)
	keys := []string{k.State, k.Stream}
	args := append([]any{c.Version, c.Epoch, ChangeID(c), models.NewTime(s.opts.Clock()).Format(models.TimeLayout)}, fixed(c)...)
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
