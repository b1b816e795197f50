package torture

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"time"

	"dibs/models"
)

// extraLimit is a limit of a campaign beside per_user: of the user, or of a
// device that several users share. A round is within one day, month and, but
// for midnight of a Sunday, week.
type extraLimit struct {
	by  string
	per models.Per
	max int64
	// gone is from when it may not be in force any more; zero: it is.
	gone time.Time
}

// devices is how many there are.
const devices = 12

// drawLimits gives a campaign limits.
func (o *operator) drawLimits(c *campaign) {
	if c.packets {
		c.perUser = between(o.r, 1, 2)
		c.users = 400
		return
	}
	if o.r.IntN(2) == 0 {
		c.perDay = 6 // by itself: who removes another limit removes this one as well
		return
	}
	c.perUser = between(o.r, 3, 30)
	c.extra = o.drawLimit(c.shards)
}

// drawLimit is any limit that campaigns of so many shards can have.
func (o *operator) drawLimit(shards int) *extraLimit {
	l := &extraLimit{by: "device", per: models.Pers[o.r.IntN(len(models.Pers))], max: between(o.r, 5, 60)}
	if shards > 1 { // these have limits of one subject, which is the user
		l.by = models.ByUser
		l.per = models.PerHour
	}
	return l
}

// body is the limits of a request that makes a campaign.
func (l *extraLimit) body() []map[string]any {
	return []map[string]any{{"by": l.by, "per": l.per, "max": l.max}}
}

// subjectOf is whom claims of a user count for.
func (l *extraLimit) subjectOf(user string) string {
	if l.by == models.ByUser {
		return user
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(user)) // it never fails
	return fmt.Sprintf("device-%d", sum.Sum32()%devices)
}

// keyOf names what a claim counts for: whom, and in which window of Redis'
// time. A window is the one that Redis counted the claim in, right or wrong.
func (l *extraLimit) keyOf(user string, at time.Time) string {
	key := l.subjectOf(user)
	if l.per == models.PerHour {
		key += at.UTC().Format(" 15h")
	}
	return key
}

// inForce reports whether a limit surely was in force at a time.
func (l *extraLimit) inForce(at time.Time) bool {
	return l != nil && (l.gone.IsZero() || at.Before(l.gone))
}

// subjects are those that a claim must name.
func (c *campaign) subjects(user string) map[string]string {
	if c.extra == nil || c.extra.by == models.ByUser {
		return nil
	}
	return map[string]string{c.extra.by: c.extra.subjectOf(user)}
}

// removeExtra takes the limit away, which it insists on.
func (o *operator) removeExtra(ctx context.Context, c *campaign) error {
	if c.extra == nil || !c.extra.gone.IsZero() {
		return nil
	}
	c.mu.Lock()
	c.extra.gone = time.Now().Add(-blur)
	c.mu.Unlock()
	return o.insist(ctx, http.MethodPatch, "/v1/campaigns/"+c.id, map[string]any{"limits": []any{}})
}

// checkExtra: no subject holds more units in a window than its limit, at any
// instant (I3).
func (rd *round) checkExtra(l *ledger) {
	limit := l.extra
	if limit == nil || l.Lossy {
		return
	}
	sums := heldBy(l.rows, func(r *row) string { return limit.keyOf(r.User, r.At) })
	for _, r := range l.inTime() {
		key := limit.keyOf(r.User, r.At)
		if units := sums[key].take(r); units > limit.max && limit.inForce(r.at) {
			rd.brokenf("I3: %s: %s held %d units of %d per %s with seq %d", l.id, key, units, limit.max, limit.per, r.Seq)
		}
	}
}

// extraWrong says what is wrong with a refusal for the limit; "" is nothing.
func (l *ledger) extraWrong(one *request, from, till time.Time) string {
	limit := l.extra
	if limit == nil {
		return "it has no such limit"
	}
	var units int64
	for i := range l.rows {
		r := &l.rows[i]
		if !r.at.After(till.Add(blur)) && limit.subjectOf(r.User) == limit.subjectOf(one.user) && r.mayHoldAfter(from) {
			units += r.Quantity
		}
	}
	if units+one.quantity <= limit.max {
		return fmt.Sprintf("%s held at most %d units of %d per %s", limit.subjectOf(one.user), units, limit.max, limit.per)
	}
	return ""
}
