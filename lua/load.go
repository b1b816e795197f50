package lua

import (
	"context"
	"time"

	"dibs/models"
)

// Load writes a campaign that Redis does not hold, with nothing taken: whole or not at all. loaded is false when it was
// there already; then nothing was changed. Errors: ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (safe to send again).
func (s *Scripts) Load(ctx context.Context, c *models.Campaign) (loaded bool, err error) {
	k := s.KeysOf(c.ID)
	keys := []string{k.State, k.Users, k.Keys}
	args := append([]any{
		"kind", string(c.Kind), "time_zone", c.TimeZone, "currency", c.Currency, "hold_for_ms", c.HoldForMs,
		"epoch", c.Epoch, "taken", 0, "seq", 0, "version", c.Version,
	}, definition(c)...)
	reply, err := s.run(ctx, s.load, keys, args)
	if err != nil {
		return false, err
	}
	code, err := status("load", reply)
	if err != nil {
		return false, err
	}
	switch code {
	case statusOK:
		return true, nil
	case 1:
		return false, nil
	default:
		return false, damaged("load", keys, reply)
	}
}

// definition is the part of a campaign that may change while claims flow, as fields of its state.
func definition(c *models.Campaign) []any {
	return []any{
		"status", string(c.Status), "total", c.Total, "per_user", c.PerUser, "per_user_per_day", c.PerUserPerDay,
		"starts_at_ms", unixMs(c.StartsAt), "ends_at_ms", unixMs(c.EndsAt), "low_stock_at", c.LowStockAt,
	}
}

// unixMs is 0 for no time.
func unixMs(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMilli()
}
