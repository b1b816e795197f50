package lua

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"dibs/models"
)

const (
	statusHeld = 3 // adjust.lua's reply when Redis holds this definition already, or a newer one
	statusBusy = 4 // adjust.lua's reply while someone loads the lot
)

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

// Adjust brings a definition of a campaign, d, to a lot of it in Redis, where the next claim works by it, and returns the state after it.
// If the change itself crosses a line, low stock or sold out, its event is added in the same step. A version that Redis holds already
// is told the claim stream alone; an older one changes nothing. Errors: ErrAbsent (the lot is away, and the claim stream has the definition), ErrOther (someone loads it, nothing was
// changed), ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (safe to send again).
func (s *Scripts) Adjust(ctx context.Context, c *models.Campaign, d *models.Definition) (State, error) {
	do, err := s.adjustCall(c, d)
	if err != nil {
		return State{}, err
	}
	reply, err := s.run(ctx, s.adjust, do.keys, do.args)
	if err == nil {
		err = readAdjust(c, do.keys, reply)
	}
	if err != nil {
		return State{}, err
	}
	return s.State(ctx, c.ID)
}

func (s *Scripts) adjustCall(c *models.Campaign, d *models.Definition) (call, error) {
	told, err := json.Marshal(d)
	if err != nil {
		return call{}, fmt.Errorf("lua: definition of %s: %w", c.ID, err)
	}
	k := s.KeysOf(c.ID)
	at := models.NewTime(s.opts.Clock()).Format(models.TimeLayout)
	args := append([]any{c.Version, ChangeID(c), at, s.serverNow()}, fixed(c)...)
	pause := ""
	if c.PauseID != nil {
		pause = *c.PauseID
	}
	return call{[]string{k.State, k.Stream, k.Signals}, append(append(args, told, pause), definition(c)...)}, nil
}

// readAdjust reads a reply of adjust.lua.
func readAdjust(c *models.Campaign, keys []string, reply []any) error {
	code, err := status("adjust", reply)
	if err != nil {
		return err
	}
	switch code {
	case statusOK, statusHeld:
		return nil
	case statusBusy:
		return fmt.Errorf("%w: %s", ErrOther, c.ID)
	}
	return refusal("adjust", c.ID, keys, code, reply)
}
