package lua

import (
	"time"

	"dibs/models"
)

// fixed is the constant part of a campaign's
// state: the four pairs that adjust.lua compares.
func fixed(c *models.Campaign) []any {
	return []any{"kind", string(c.Kind), "time_zone", c.TimeZone, "currency", c.Currency, "hold_for_ms", c.HoldForMs}
}

// definition is the changeable part of a campaign's state. Push changes
// the total of packets. Debit and Credit change that of a shard.
func definition(c *models.Campaign) []any {
	pause := ""
	if c.PauseID != nil {
		pause = *c.PauseID
	}
	fields := []any{"status", string(c.Status), "known_pause", pause}
	fields = append(fields, "per_user", c.PerUser, "per_user_per_day", c.PerUserPerDay, "limits", formatLimits(c.Limits))
	fields = append(fields, "starts_at_ms", unixMs(c.StartsAt), "ends_at_ms", unixMs(c.EndsAt), "low_stock_at", c.LowStockAt)
	if c.Kind != models.KindPacket && !models.IsShardID(c.ID) {
		fields = append(fields, "total", c.Total)
	}
	return fields
}

// unixMs is 0 for no time, and else at least
// 1. A time before 1970 is past, not none.
func unixMs(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return max(1, t.UnixMilli())
}
