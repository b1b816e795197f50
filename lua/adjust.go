package lua

import (
	"context"
	"crypto/sha256"

	"github.com/google/uuid"

	"dibs/models"
)

// statusHeld is adjust.lua's reply when Redis holds this definition already, or a newer one.
const statusHeld = 3

// ChangeID names a version of a campaign's definition. It is part of the ids of the events of lines that the change crosses, so that
// readers know an event that is added twice. It is a UUIDv7, as versions are times.
func ChangeID(c *models.Campaign) string {
	sum := sha256.Sum256([]byte(c.ID + "\n" + formatInt(c.Version)))
	id := uuid.UUID(sum[:16])
	for i := range 6 {
		id[i] = byte(c.Version >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// Adjust brings a changed definition to Redis, where the next claim works by it, and returns the state after it. If the change itself
// crosses a line, low stock or sold out, its event is added in the same step. A version that Redis holds already changes nothing.
// Errors: ErrAbsent (it is away, too), ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (safe to send again).
func (s *Scripts) Adjust(ctx context.Context, c *models.Campaign) (State, error) {
	do := s.adjustCall(c)
	reply, err := s.run(ctx, s.adjust, do.keys, do.args)
	if err == nil {
		err = readAdjust(c, do.keys, reply)
	}
	if err != nil {
		return State{}, err
	}
	return s.State(ctx, c.ID)
}

func (s *Scripts) adjustCall(c *models.Campaign) call {
	k := s.KeysOf(c.ID)
	at := models.NewTime(s.opts.Clock()).Format(models.TimeLayout)
	args := append([]any{c.Version, ChangeID(c), at, s.serverNow()}, fixed(c)...)
	return call{[]string{k.State, k.Stream, k.Signals}, append(args, definition(c)...)}
}

// readAdjust reads a reply of adjust.lua.
func readAdjust(c *models.Campaign, keys []string, reply []any) error {
	code, err := status("adjust", reply)
	if err != nil {
		return err
	}
	if code == statusOK || code == statusHeld {
		return nil
	}
	return refusal("adjust", c.ID, keys, code, reply)
}
