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
	statusHeld = 3 // adjust.lua: Redis has this definition or a newer one
	statusBusy = 4 // adjust.lua: the lot is being loaded
)

// ChangeID identifies a version of a definition. Events of crossed
// lines use it, so readers recognize an event that is appended twice.
// It is a UUIDv7, as versions are times.
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

// Adjust applies definition d to a lot from its next claim on, and
// returns the state. If the change crosses a line, low stock or sold
// out, the same step appends its event. A known version is only
// appended to the claim stream. An older one changes nothing.
//
// Errors: ErrAbsent (the lot is away; the stream has the definition),
// ErrOther (the lot is being loaded; nothing changed), ErrDamaged,
// ErrUnavailable, ErrOutcomeUnknown (retry).
func (s *Scripts) Adjust(ctx context.Context, c *models.Campaign, d *models.Definition) (State, error) {
	do, err := s.adjustCall(c, d)
	if err != nil {
		return State{}, err
	}
	code, reply, err := s.run(ctx, "adjust", do.keys, do.args)
	switch {
	case err != nil:
		return State{}, err
	case code == statusOK, code == statusHeld:
		return s.State(ctx, c.ID)
	case code == statusBusy:
		return State{}, fmt.Errorf("%w: %s", ErrOther, c.ID)
	}
	return State{}, refusal("adjust", c.ID, do.keys, code, reply)
}

func (s *Scripts) adjustCall(c *models.Campaign, d *models.Definition) (call, error) {
	encoded, err := json.Marshal(d)
	if err != nil {
		return call{}, fmt.Errorf("lua: definition of %s: %w", c.ID, err)
	}
	k := s.KeysOf(c.ID)
	args := append([]any{c.Version, ChangeID(c), s.atText(), s.serverNow()}, fixed(c)...)
	return call{[]string{k.State, k.Stream, k.Signals}, append(append(args, encoded), definition(c)...)}, nil
}
