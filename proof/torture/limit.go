package torture

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"time"

	"dibs/models"
)

// extraLimit is a limit beside per_user: of the user, or of a
// device shared by several users. A round is within one day,
// month and, except for midnight of a Sunday, week.
type extraLimit struct {
	by  string
	per models.Per
	max int64
	// from when it may no longer be in force; zero: it is.
	removed time.Time
}

const devices = 12

func (o *operator) drawLimits(c *campaign) {
	if c.packets {
		c.perUser = between(o.r, 1, 2)
		c.users = 400
		return
	}
	if o.r.IntN(2) == 0 {
		c.perDay = 6 // alone: removing another limit removes this one as well
		return
	}
	c.perUser = between(o.r, 3, 30)
	c.extra = o.drawLimit(c.shards)
}

func (o *operator) drawLimit(shards int) *extraLimit {
	l := &extraLimit{by: "device", per: models.Pers[o.r.IntN(len(models.Pers))], max: between(o.r, 5, 60)}
	if shards > 1 { // sharded campaigns have limits of one subject only, the user
		l.by = models.ByUser
		l.per = models.PerHour
	}
	return l
}

func (l *extraLimit) body() []map[string]any {
	return []map[string]any{{"by": l.by, "per": l.per, "max": l.max}}
}

func (l *extraLimit) subjectOf(user string) string {
	if l.by == models.ByUser {
		return user
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(user)) // it never fails
	return fmt.Sprintf("device-%d", sum.Sum32()%devices)
}

// keyOf identifies a claim's subject and window, by Redis' time:
// right or wrong, Redis counted the claim in that window.
func (l *extraLimit) keyOf(user string, at time.Time) string {
	key := l.subjectOf(user)
	if l.per == models.PerHour {
		key += at.UTC().Format(" 15h")
	}
	return key
}

func (l *extraLimit) inForce(at time.Time) bool {
	return l != nil && (l.removed.IsZero() || at.Before(l.removed))
}

// subjects returns the subjects that a claim must name.
func (c *campaign) subjects(user string) map[string]string {
	if c.extra == nil || c.extra.by == models.ByUser {
		return nil
	}
	return map[string]string{c.extra.by: c.extra.subjectOf(user)}
}

// removeExtra removes the limit, retrying until done.
func (o *operator) removeExtra(ctx context.Context, c *campaign) error {
	if c.extra == nil || !c.extra.removed.IsZero() {
		return nil
	}
	c.mu.Lock()
	c.extra.removed = time.Now().Add(-blur)
	c.mu.Unlock()
	return o.insist(ctx, http.MethodPatch, "/v1/campaigns/"+c.id, map[string]any{"limits": []any{}})
}

// checkExtra checks that no subject ever holds more units in a
// window than its limit (I3).
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
