package torture

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"dibs/models"
)

// never is the end time of a campaign without one.
const never = math.MaxInt64

// noon is a zone where it is now about noon: no day ends in a
// round, even while a clock is wrong.
func noon() string {
	if ahead := 12 - time.Now().UTC().Hour(); ahead > 0 {
		return fmt.Sprintf("Etc/GMT-%d", ahead)
	}
	return fmt.Sprintf("Etc/GMT+%d", time.Now().UTC().Hour()-12)
}

// pause stops a campaign for a time, by its status or one of its
// times, and reopens it, retrying until done.
func (o *operator) pause(ctx context.Context, c *campaign, lasts time.Duration) error {
	at := time.Now().Add(lasts / 2).Truncate(time.Millisecond)
	spells := &c.paused
	value := int64(1)
	body := map[string]any{"status": models.StatusPaused}
	// not drawn, so that existing seeds keep their meaning
	switch lasts.Milliseconds() % 3 {
	case 1:
		spells = &c.starts
		value = at.UnixMilli()
		body = map[string]any{"starts_at": models.NewTime(at)}
	case 2:
		spells = &c.ends
		value = at.UnixMilli()
		body = map[string]any{"ends_at": models.NewTime(at)}
	}
	answered := c.change(spells, value)
	answered(o.send(ctx, http.MethodPatch, o.base()+"/v1/campaigns/"+c.id, "", body).code)
	wait(ctx, lasts)
	return o.reopen(ctx, c)
}

func (o *operator) reopen(ctx context.Context, c *campaign) error {
	body := map[string]any{"status": models.StatusOpen, "starts_at": nil, "ends_at": nil}
	return o.insistOn(context.WithoutCancel(ctx), http.MethodPatch, "/v1/campaigns/"+c.id, body, func() func(string) {
		changes := []func(string){c.change(&c.paused, 0), c.change(&c.starts, 0), c.change(&c.ends, never)}
		return func(code string) {
			for _, answered := range changes {
				answered(code)
			}
		}
	})
}

// shut reports whether a refusal means that a campaign takes no claims now.
func shut(code string) bool {
	return slices.Contains([]string{"paused", "not_started", "ended", "closed"}, code)
}

// shutWrong says what is wrong with such a refusal; "" is nothing.
func (c *campaign) shutWrong(code string, from, till time.Time) string {
	switch {
	case code == "paused" && !slices.Contains(c.may(&c.paused, from, till), 1):
		return "it was open"
	case code == "not_started" && slices.Max(c.may(&c.starts, from, till)) <= from.Add(-blur).UnixMilli():
		return "it had started"
	case code == "ended" && slices.Min(c.may(&c.ends, from, till)) > till.Add(blur).UnixMilli():
		return "it was not over"
	case code == "closed" && !c.closing.Load():
		return "it was not closed"
	}
	return ""
}

// surelyShut says why no claim was possible at any time of a
// span; "" if one was.
func (c *campaign) surelyShut(from, till time.Time) string {
	switch {
	case !slices.Contains(c.may(&c.paused, from, till), 0):
		return "was paused"
	case slices.Min(c.may(&c.starts, from, till)) > till.UnixMilli():
		return "had not started"
	case slices.Max(c.may(&c.ends, from, till)) <= from.UnixMilli():
		return "was over"
	}
	return ""
}
