package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/models"

	"golang.org/x/sync/semaphore"
)

// lane delivers the events of a campaign to an endpoint, one delivery at a
// time, in order. Events go through memory until one fails or too many wait;
// from then on all go through the table, until that is empty.
type lane struct {
	d     *Dispatcher
	key   laneKey
	turns *semaphore.Weighted // of the endpoint

	// Guarded by the Dispatcher's mu.
	queue   []*item // to be sent from memory; the first are under way
	sending int     // so many of them
	spilled bool    // what comes goes through the table
	spills  int     // that the writer was handed
	commits int     // of these, that it has inserted
	running bool
	waiting int64     // events that are not delivered
	oldest  time.Time // when the event that is tried was made; zero: none is

	// The goroutine's own.
	gap     *Gap  // that the endpoint was not told of
	fails   int   // in a row
	after   int64 // number of the last row that is done with
	removed int64 // number up to which such rows are deleted
	needed  int   // commits without which the table lacks the event that is next
}

// start runs the lane if it has work and does not run. The caller holds the
// Dispatcher's mu.
func (l *lane) start() {
	if l.running || len(l.queue) == 0 && !l.spilled {
		return
	}
	l.running = true
	l.d.running.Go(l.run)
}

func (l *lane) run() {
	ctx := l.d.ctx
	for ctx.Err() == nil {
		heads, commits, more := l.next()
		switch {
		case len(heads) > 0:
			l.fromMemory(ctx, heads)
		case more:
			l.fromTable(ctx, commits)
		default:
			return
		}
	}
	l.d.mu.Lock()
	left := l.queue
	l.queue = nil
	l.d.mu.Unlock()
	settle([]spill{{l, left}}, ctx.Err())
}

// next are the events to send from memory, or else whether there is a detour
// through the table to go on with. A lane without either ends.
func (l *lane) next() (heads []*item, commits int, more bool) {
	most := l.d.perDelivery(l.key.endpoint)
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	switch {
	case len(l.queue) > 0:
		l.oldest = l.queue[0].At
		l.sending = min(most, len(l.queue))
		return slices.Clone(l.queue[:l.sending]), 0, true
	case l.spilled:
		return nil, l.commits, true
	}
	l.running = false
	l.oldest = time.Time{}
	if l.gap == nil {
		delete(l.d.lanes, l.key)
	}
	return nil, 0, false
}

// underway are copies of the events that are under way, for the table: after a
// crash they come before those behind them, as they are there. The caller holds
// the Dispatcher's mu.
func (l *lane) underway() (items []*item) {
	for _, it := range l.queue[:min(max(1, l.sending), len(l.queue))] {
		items = append(items, &item{WebhookEvent: it.WebhookEvent, done: func(error) {}})
	}
	return items
}

// fromMemory sends the events at the head of the queue. If they fail they go to
// the table, with all behind them.
func (l *lane) fromMemory(ctx context.Context, heads []*item) {
	events := make([]models.WebhookEvent, len(heads))
	for i, it := range heads {
		events[i] = it.WebhookEvent
	}
	err := l.d.send(l, events)
	if err != nil && ctx.Err() != nil {
		return
	}
	failed := err != nil && !errors.Is(err, errGone)
	l.d.mu.Lock()
	behind := l.d.unqueue(l, 0)
	l.sending = 0
	if failed {
		l.d.spill(l, behind)
		l.needed = l.spills
	} else {
		l.d.queue(l, behind[len(heads):])
		l.waiting -= int64(len(heads))
	}
	l.d.mu.Unlock()
	if failed {
		l.failed(ctx, err)
		return
	}
	l.delivered(err)
	l.after = max(l.after, heads[len(heads)-1].No) // the table may have them, too
	for _, it := range heads {
		it.done(nil)
	}
}

// fromTable sends a page of events of the table. commits were inserted before.
func (l *lane) fromTable(ctx context.Context, commits int) {
	if commits < l.needed {
		_ = sleep.For(ctx, commitPause)
		return
	}
	limit := pageRows
	if l.fails > 0 {
		limit = 1 // a receiver that is away has no pages in memory
	}
	err := l.forget()
	if err != nil {
		l.storeFailed(ctx, err)
		return
	}
	rows, err := l.d.store.page(ctx, l.key, l.after, limit)
	if err != nil {
		l.storeFailed(ctx, err)
		return
	}
	if len(rows) == 0 && !l.returnToMemory(commits) {
		_ = sleep.For(ctx, commitPause)
	}
	for events := range slices.Chunk(rows, l.d.perDelivery(l.key.endpoint)) {
		l.trying(events[0].At)
		if err := l.d.send(l, events); err != nil {
			_ = l.forget() // or the next time
			l.refused(ctx, events[0].CreatedAt, err)
			return
		}
		l.delivered(nil)
		l.done(events[len(events)-1].No, int64(len(events)))
	}
	_ = l.forget() // or the next time
}

// refused waits after a failure, or gives up what has been tried for long
// enough.
func (l *lane) refused(ctx context.Context, since time.Time, err error) {
	now := sqlstore.Now()
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errGone):
		_ = sleep.For(ctx, l.d.cfg.maxBackoff/10)
	case now.Sub(since) < l.d.cfg.GiveUpAfter:
		l.failed(ctx, err)
	default:
		l.park(ctx, now.Add(-l.d.cfg.GiveUpAfter), err)
	}
}

// park gives up the events that have waited since a time or longer. The next
// delivery announces that.
func (l *lane) park(ctx context.Context, since time.Time, reason error) {
	n, last, err := l.d.store.park(ctx, l.key, since, reason.Error())
	if err == nil {
		l.gap, err = l.d.store.gap(ctx, l.key)
	}
	if err != nil {
		l.storeFailed(ctx, err)
		return
	}
	l.fails = 0
	l.done(last, n)
	l.d.metrics.parked.WithLabelValues(l.key.endpoint).Add(float64(n))
	l.log().ErrorContext(ctx, "events are parked: the endpoint did not take them for too long",
		slog.Int64("events", n), slog.Any("error", reason))
}

// returnToMemory ends the detour through the table, unless something was
// inserted into it since, or is about to be.
func (l *lane) returnToMemory(commits int) bool {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.spills == commits && l.commits == commits {
		l.spilled = false
	}
	return !l.spilled
}

// done notes that n rows up to a number need no more tries.
func (l *lane) done(upTo, n int64) {
	l.after = max(l.after, upTo)
	l.d.mu.Lock()
	l.waiting -= n
	l.d.mu.Unlock()
}

// forget deletes the delivered rows. It goes on when the process stops: what it
// leaves is delivered again.
func (l *lane) forget() error {
	if l.removed >= l.after {
		return nil
	}
	err := l.d.store.remove(l.d.finishing, l.key, l.after)
	if err == nil {
		l.removed = l.after
	}
	return err
}

// delivered notes that the endpoint has an event, and with it knows of the gap
// before.
func (l *lane) delivered(err error) {
	l.fails = 0
	if l.gap != nil && err == nil && l.d.store.announced(l.d.finishing, l.key) == nil {
		l.gap = nil
	}
}

// failed waits before the next try.
func (l *lane) failed(ctx context.Context, err error) {
	if l.fails == 0 {
		l.log().WarnContext(ctx, "an endpoint did not take an event: it is tried again, and the campaign's events behind it wait",
			slog.Any("error", err))
	}
	wait := min(l.d.cfg.initialBackoff<<min(l.fails, 20), l.d.cfg.maxBackoff)
	l.fails++
	_ = sleep.For(ctx, wait/2+rand.N(wait)) //nolint:gosec // spreads requests
}

func (l *lane) storeFailed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	l.log().WarnContext(ctx, "the table of events that wait can't be read, will try again", slog.Any("error", err))
	_ = sleep.For(ctx, storePause)
}

func (l *lane) trying(at time.Time) {
	l.d.mu.Lock()
	l.oldest = at
	l.d.mu.Unlock()
}

func (l *lane) log() *slog.Logger {
	return l.d.cfg.Logger.With(slog.String("endpoint", l.key.endpoint), slog.String("campaign_id", l.key.campaignID))
}
