package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
)

const (
	expireBatch  = 500    // claims of one transaction: a few hundredths of a second of work
	expirePage   = 100    // lots that are examined together
	expireReach  = 5000   // seqs of a lot that are examined together
	expireWindow = 50_000 // due rows of stock_flushes that a pass orders by lot
	expireRate   = 2000   // claims a second: claims that are made come first

	// examineRate is how many seqs a millisecond of a row of stock_flushes may be examined: a row whose claims lie far apart is not
	// examined each time that one of the claims between them is due.
	examineRate = 20
)

// Expirer releases claims that were not redeemed in time, by the clock that they were made by, which is Redis'. Expire is for one
// goroutine; several processes at once do no harm.
//
// A flush notes in its row of stock_flushes when the first hold of its claims ends. due_ms has an index, so that a round with nothing due
// costs one empty read. The expirer examines the range of seqs of each due row. It releases what is due there; once nothing is, it sets
// due_ms to the end of the next hold in the range, or to NULL. Claims of other flushes may lie in the same range; they have rows of their
// own. So the order in which claims were made, or were written, does not matter.
type Expirer struct {
	relay   *Relay
	intact  func(ctx context.Context, partitions []int) ([]int, error)
	expired prometheus.Counter
	late    prometheus.Gauge
	overdue time.Duration // of the hold that has been over longest, in this pass

	pace      *rate.Limiter // by expireRate, but in tests
	batchSize int           // is expireBatch, but in tests
	reach     int64         // is expireReach, but in tests
	steps     steps.Steps
}

// NewExpirer makes an expirer whose decisions relay applies to Redis; reg may be nil. intact returns those of some partitions whose holds may
// end: a MySQL that is behind may lack redeems. See lots.Loader.OK; nil is all of them.
func NewExpirer(
	relay *Relay, intact func(ctx context.Context, partitions []int) ([]int, error), reg prometheus.Registerer,
) *Expirer {
	return &Expirer{
		relay: relay, intact: intact, pace: rate.NewLimiter(expireRate, expireBatch), batchSize: expireBatch, reach: expireReach,
		expired: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_expired_total", Help: "Claims that no one redeemed in time and that this process released.",
		}),
		late: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "dibs_holds_late_seconds", Help: "For how long the hold that is open longest has been over. 0 on who does not lead.",
		}),
	}
}

// Expire releases what is due and returns how many claims that was. It goes over the lots in which claims are due again and again, and
// each time takes no more of one than its share of a transaction. A failure is returned after the others had their turn.
func (e *Expirer) Expire(ctx context.Context) (expired int, err error) {
	for more := true; more; {
		var n int
		n, more, err = e.pass(ctx)
		expired += n
		if err != nil {
			return expired, fmt.Errorf("resolve: expire: %w", err)
		}
	}
	return expired, nil
}

// pass gives each lot in which claims may be due a turn, those that wait longest first. more reports whether another pass has something
// to do.
func (e *Expirer) pass(ctx context.Context) (expired int, more bool, err error) {
	now, err := e.relay.scripts.Now(ctx)
	if err != nil {
		return 0, false, err
	}
	lots, err := e.due(ctx, now)
	if err != nil {
		return 0, false, err
	}
	e.overdue = 0
	lots, err = e.ofIntact(ctx, lots)
	failed := []error{err}
	for page := range slices.Chunk(lots, min(expirePage, e.batchSize)) {
		n, again, err := e.turn(ctx, page, now)
		expired += n
		more = more || again || n > 0
		if ctx.Err() != nil {
			return expired, false, context.Cause(ctx)
		}
		if err != nil && len(failed) < sqlstore.PageSize {
			failed = append(failed, err)
		}
	}
	e.late.Set(e.overdue.Seconds())
	return expired, more, errors.Join(failed...)
}

// ofIntact are the lots of partitions that MySQL has applied to the tip.
func (e *Expirer) ofIntact(ctx context.Context, lots []heldLot) ([]heldLot, error) {
	if e.intact == nil || len(lots) == 0 {
		return lots, nil
	}
	partitionOf := func(l *heldLot) int { return lua.PartitionOf(l.id(), e.relay.scripts.Partitions()) }
	var partitions []int
	for i := range lots {
		partitions = append(partitions, partitionOf(&lots[i]))
	}
	slices.Sort(partitions)
	intact, err := e.intact(ctx, slices.Compact(partitions))
	return slices.DeleteFunc(lots, func(l heldLot) bool { return !slices.Contains(intact, partitionOf(&l)) }), err
}

// ResetMetrics sets the gauge to 0: another process leads.
func (e *Expirer) ResetMetrics() { e.late.Set(0) }

// turn releases a share of what is due in each lot of a page. again reports whether lots have more due rows than were examined.
func (e *Expirer) turn(ctx context.Context, page []heldLot, now time.Time) (expired int, again bool, err error) {
	e.steps.At("turn")
	share := max(1, e.batchSize/len(page))
	found, err := e.examine(ctx, page, share, now)
	if err != nil {
		return 0, false, err
	}
	e.steps.At("found")
	var due []openHold
	var settled []heldFlush
	for i := range page {
		lot := &page[i]
		holds := found[lot.id()]
		if len(holds) > 0 {
			e.overdue = max(e.overdue, now.Sub(time.UnixMilli(lot.flushes[0].DueMs)))
		}
		due = append(due, holds...)
		rows := lot.without(holds, share)
		settled = append(settled, rows...)
		again = again || lot.hasMore && len(rows) > 0
	}
	err = e.settle(ctx, settled, now)
	if err := e.pace.WaitN(ctx, len(due)); err != nil {
		return 0, again, fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // of the round: the next one goes on
	}
	expired, expireErr := e.expire(ctx, due)
	return expired, again, errors.Join(err, expireErr)
}

// heldLot are due rows of stock_flushes of one lot that are examined together.
type heldLot struct {
	flushes           []heldFlush // the one that is due first, and others beside it
	firstSeq, lastSeq int64       // of all of them
	hasMore           bool        // the lot has due rows beside these
}

// add adds a due row of the lot, unless all would be too far apart then.
func (l *heldLot) add(f *heldFlush, reach int64) {
	first := min(l.firstSeq, f.FirstSeq)
	last := max(l.lastSeq, f.LastSeq)
	if len(l.flushes) > 0 && (l.hasMore || last-first >= reach) {
		l.hasMore = true
		return
	}
	if len(l.flushes) == 0 {
		first = f.FirstSeq
		last = f.LastSeq
	}
	l.flushes = append(l.flushes, *f)
	l.firstSeq = first
	l.lastSeq = last
}

func (l *heldLot) id() string { return models.ShardID(l.flushes[0].CampaignID, l.flushes[0].Shard) }

// without are the rows in whose range nothing is due. found are the first claims of the lot that are due, in order of seq, at most that
// many.
func (l *heldLot) without(found []openHold, most int) (rows []heldFlush) {
	for _, f := range l.flushes {
		isExamined := len(found) < most || f.LastSeq <= found[len(found)-1].Seq
		isDue := slices.ContainsFunc(found, func(h openHold) bool { return h.Seq >= f.FirstSeq && h.Seq <= f.LastSeq })
		if isExamined && !isDue {
			rows = append(rows, f)
		}
	}
	return rows
}
