package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
)

const (
	expireBatch = 500  // claims of one transaction: a few hundredths of a second of work
	expirePage  = 100  // campaigns that are looked at together
	expireReach = 5000 // places of the order of a campaign that one look goes over
	expireRate  = 2000 // claims a second: claims that are made come first
)

// Expirer releases claims that nobody redeemed in time, by the clock that they were made by, which is Redis'. Expire is for one
// goroutine; several processes at once do no harm.
//
// MySQL knows when the next hold of each campaign ends: a flush notes the earliest of its claims in campaigns.next_due_ms, which has
// an index, and the expirer moves it on. A campaign in which nothing is due costs nothing. settled_seq is the place in its
// order behind which the expirer looks: none of the claims before it is open. What a flush, or another expirer, changed since it read
// the campaign it leaves for the next pass.
//
// In the order of a campaign the times of claims grow, so that the first one that is open is the first that is due. Where they may not,
// because Redis' clock stepped back, a flush counts that in holds_mixed, and all claims behind settled_seq are looked at.
type Expirer struct {
	relay   *Relay
	expired prometheus.Counter

	pace      *rate.Limiter // by expireRate, but in tests
	batchSize int           // is expireBatch, but in tests
	reach     int64         // is expireReach, but in tests
	steps     steps.Steps
}

// NewExpirer makes an expirer whose decisions relay applies to Redis; reg may be nil.
func NewExpirer(relay *Relay, reg prometheus.Registerer) *Expirer {
	return &Expirer{
		relay: relay, pace: rate.NewLimiter(expireRate, expireBatch), batchSize: expireBatch, reach: expireReach,
		expired: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_expired_total", Help: "Claims that nobody redeemed in time and that this process released.",
		}),
	}
}

// Expire releases what is due and returns how many claims that was. It goes over the campaigns in which claims are due again and
// again, and each time takes no more of one than its share of a transaction. A failure is returned after the others had their
// turn.
func (e *Expirer) Expire(ctx context.Context) (expired int, err error) {
	for _, table := range models.BooksTables {
		for more := true; more; {
			var n int
			n, more, err = e.pass(ctx, table)
			expired += n
			if err != nil {
				return expired, fmt.Errorf("resolve: expire: %w", err)
			}
		}
	}
	return expired, nil
}

// pass gives each campaign of one table in which claims may be due a turn, those that wait longest first. more is true when another
// pass has something to do.
func (e *Expirer) pass(ctx context.Context, table string) (expired int, more bool, err error) {
	now, err := e.relay.scripts.Now(ctx)
	if err != nil {
		return 0, false, err
	}
	var failed []error
	size := min(expirePage, e.batchSize)
	for last := (heldCampaign{}); ; {
		page, err := e.due(ctx, table, now, &last, size)
		if err != nil {
			return expired, false, errors.Join(append(failed, err)...)
		}
		n, moved, err := e.turn(ctx, page, now)
		expired, more = expired+n, more || moved || n > 0
		if ctx.Err() != nil {
			return expired, false, context.Cause(ctx)
		}
		if err != nil && len(failed) < sqlstore.PageSize {
			failed = append(failed, err)
		}
		if len(page) < size {
			return expired, more, errors.Join(failed...)
		}
		last = page[len(page)-1]
	}
}

// turn releases a share of what is due in each campaign of a page. moved is true when a campaign has to be looked at again though
// nothing was found in its reach.
func (e *Expirer) turn(ctx context.Context, page []heldCampaign, now time.Time) (expired int, moved bool, err error) {
	if len(page) == 0 {
		return 0, false, nil
	}
	e.steps.At("turn")
	share := max(1, e.batchSize/len(page))
	found, err := e.look(ctx, page, share)
	if err != nil {
		return 0, false, err
	}
	var due []openHold
	var moves []heldMove
	var failed []error
	for i := range page {
		c := &page[i]
		holds, next, err := e.plan(ctx, c, found[c.ID], share, now)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		due = append(due, holds...)
		if next != c.Place {
			moves = append(moves, heldMove{c, next})
		}
	}
	e.steps.At("found")
	moved, err = e.move(ctx, moves, now)
	if err := e.pace.WaitN(ctx, len(due)); err != nil {
		return 0, moved, fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // of the round: the next one goes on
	}
	expired, expireErr := e.expire(ctx, due)
	return expired, moved, errors.Join(append(failed, err, expireErr)...)
}

// plan says which of the claims of a campaign that were found are due, up to its share of a transaction, and what is to be known
// of it for the next look.
func (e *Expirer) plan(
	ctx context.Context, c *heldCampaign, found []openHold, share int, now time.Time,
) (due []openHold, next heldPlace, err error) {
	next = c.Place
	switch {
	case c.Place.HoldsMixed > 0:
		return e.planMixed(ctx, c, share, now)
	case len(found) > 0:
		next.NextDueMs, next.SettledSeq = firstDue(found), found[0].Seq-1
		return dueOf(found, now), next, nil
	case c.Place.SettledSeq+e.reach < c.LastSeq:
		next.SettledSeq += e.reach
		return nil, next, nil
	}
	return nil, heldPlace{NextDueMs: never, SettledSeq: max(c.Place.SettledSeq, c.LastSeq)}, nil
}

// planMixed is plan for a campaign in which a claim may be due before others with a lower seq. It goes over all of them, or up to
// where enough are due. If they are in order after all, or none is open, that is noted.
func (e *Expirer) planMixed(ctx context.Context, c *heldCampaign, share int, now time.Time) (due []openHold, next heldPlace, err error) {
	at := *c
	var latestMs int64
	isOrdered, firstOpen := true, max(c.Place.SettledSeq, c.LastSeq)+1
	next.NextDueMs = never
	for ; at.Place.SettledSeq < c.LastSeq; at.Place.SettledSeq += e.reach {
		found, err := e.look(ctx, []heldCampaign{at}, int(e.reach))
		if err != nil {
			return nil, c.Place, err
		}
		for _, h := range found[c.ID] {
			firstOpen = min(firstOpen, h.Seq)
			isOrdered = isOrdered && h.DueMs >= latestMs
			latestMs, next.NextDueMs = max(latestMs, h.DueMs), min(next.NextDueMs, h.DueMs)
			if h.DueMs <= now.UnixMilli() {
				due = append(due, h)
			}
			if len(due) == share {
				return due, heldPlace{NextDueMs: c.Place.NextDueMs, SettledSeq: firstOpen - 1, HoldsMixed: c.Place.HoldsMixed}, nil
			}
		}
	}
	next.SettledSeq = firstOpen - 1
	if !isOrdered {
		next.HoldsMixed = c.Place.HoldsMixed
	}
	return due, next, nil
}

// dueOf are the holds that have ended.
func dueOf(found []openHold, now time.Time) (due []openHold) {
	for i := range found {
		if found[i].DueMs <= now.UnixMilli() {
			due = append(due, found[i])
		}
	}
	return due
}

// firstDue is when the hold ends that ends first.
func firstDue(found []openHold) int64 {
	return slices.MinFunc(found, func(a, b openHold) int { return cmp.Compare(a.DueMs, b.DueMs) }).DueMs
}
