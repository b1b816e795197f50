package operator

import (
	"time"

	"dibs/api/wire"
	"dibs/models"
)

// minHold is the shortest hold_for: overdue holds are searched once a second.
const minHold = time.Second

// contradiction refuses a new campaign whose fields contradict each other.
// Existing campaigns may have contradictions: they continue, and may be
// created again.
func contradiction(c *models.Campaign, now time.Time) *wire.Problem {
	switch {
	case c.EndsAt != nil && !c.EndsAt.After(now):
		return wire.Invalid("ends_at", "has passed: the campaign would never take a claim")
	case c.PerUser > 0 && c.PerUserPerDay > c.PerUser:
		return wire.Invalid("per_user_per_day", "must not be above per_user, which holds for all days together")
	case c.Kind == models.KindCoupon && c.LowStockAt > c.Total:
		return wire.Invalid("low_stock_at", "must not be above total: the stock would be low from the start")
	case c.HoldForMs > 0 && c.HoldFor() < minHold:
		return wire.Invalid("hold_for", "must be at least "+minHold.String())
	}
	if _, ok := models.MinorDigits(c.Currency); c.Currency != "" && !ok {
		return wire.Invalid("currency", "must be a code of ISO 4217 that has a minor unit")
	}
	return nil
}

// contradicts refuses a change that causes a contradiction. Earlier
// contradictions don't matter: a pause must not fail because of them.
func contradicts(change *models.Change, was *models.Campaign) *wire.Problem {
	is := *was
	change.Apply(&is)
	switch daily := "per_user_per_day"; {
	// Lowering per_user below it is allowed. In a rush it must work at once.
	case change.PerUserPerDay != nil && is.PerUser > 0 && is.PerUserPerDay > is.PerUser:
		return wire.Invalid(daily, "must not be above per_user, which holds for all days together")
	case change.LowStockAt != nil && is.Kind == models.KindCoupon && is.LowStockAt > is.Total:
		return wire.Invalid("low_stock_at", "must not be above total: the stock would be low from the start")
	}
	return nil
}
