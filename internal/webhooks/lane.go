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
	"dibs/models/stored"

	"golang.org/x/sync/semaphore"
)

// lane delivers a campaign's events to an endpoint, one delivery at a time,
// in order. Events go through memory until one fails or too many wait. Then
// all go through the table, until it is empty.
type lane struct {
	d     *Dispatcher
	key   laneKey
	slots *semaphore.Weighted // of the endpoint

	// Guarded by the Dispatcher's mu.
	queue   []*item // to send from memory; the first are in progress
	sending int     // number in progress
	spilled bool    // new events go through the table
	spills  int     // handed to the writer
	commits int     // of these, inserted
	running bool
	waiting int64     // undelivered events
	oldest  time.Time // time of the event being tried; zero: none
	// Inserts that a look at the table waits for: it would lack the next
	// event, or get one later that was delivered from memory.
	needed int

	// Owned by the goroutine.
	gap     *Gap  // not yet reported to the endpoint
	fails   int   // consecutive
	after   int64 // number of the last row done
	removed int64 // rows up to this number are deleted or parked
}

// start runs the lane if it has work and is idle. The caller
// holds the Dispatcher's mu.
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

// next returns events to send from memory, or reports whether
// the table has more. A lane without either ends.
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

// underway copies the events in progress, for the table: after a
// crash they keep their position there, before later ones. The
// caller holds the Dispatcher's mu.
func (l *lane) underway() (items []*item) {
	for _, it := range l.queue[:min(max(1, l.sending), len(l.queue))] {
		items = append(items, &item{WebhookEvent: it.WebhookEvent, done: func(error) {}})
	}
	return items
}

// fromMemory sends the events at the head of the queue. If that
// fails, the whole queue moves to the table.
func (l *lane) fromMemory(ctx context.Context, heads []*item) {
	events := make([]stored.WebhookEvent, len(heads))
	for i, it := range heads {
		events[i] = it.WebhookEvent
	}
	n, err := l.d.send(l, events)
	l.d.mu.Lock()
	if err != nil && ctx.Err() != nil { // under mu: at the end write settles what was spilled
		l.d.mu.Unlock()
		return
	}
	behind := l.d.unqueue(l, 0)
	l.sending = 0
	if err != nil {
		l.d.spill(l, behind)
		l.needed = l.spills
	} else {
		heads = heads[:n]
		l.d.queue(l, behind[n:])
		l.waiting -= int64(n)
	}
	l.d.mu.Unlock()
	switch {
	case errors.Is(err, errRemoved): // the table waits for the endpoint's return
		return
	case err != nil:
		l.failed(ctx, err)
		return
	}
	l.delivered()
	l.after = max(l.after, heads[n-1].No) // the table may have them, too
	for _, it := range heads {
		it.done(nil)
	}
}

// fromTable sends a page of events from the table, of which
// commits were inserted.
func (l *lane) fromTable(ctx context.Context, commits int) {
	l.d.mu.Lock()
	isShort := commits < l.needed
	l.d.mu.Unlock()
	if isShort {
		_ = sleep.For(ctx, commitPause)
		return
	}
	limit := pageRows
	if l.fails > 0 {
		limit = 1 // no pages in memory for an unreachable receiver
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
	for len(rows) > 0 {
		l.trying(rows[0].At)
		n, err := l.d.send(l, rows)
		if err != nil {
			_ = l.forget() // or the next time
			l.refused(ctx, rows[0].CreatedAt, err)
			return
		}
		l.delivered()
		l.done(rows[n-1].No, int64(n))
		rows = rows[n:]
	}
	_ = l.forget() // or the next time
}

// refused waits after a failure, or parks events that were tried
// for too long.
func (l *lane) refused(ctx context.Context, since time.Time, err error) {
	now := sqlstore.Now()
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errRemoved):
		_ = sleep.For(ctx, l.d.cfg.maxBackoff/10)
	case now.Sub(since) < l.d.cfg.GiveUpAfter:
		l.failed(ctx, err)
	default:
		l.park(ctx, now.Add(-l.d.cfg.GiveUpAfter), err)
	}
}

// park gives up all events that have waited since a time or
// longer. The next delivery reports the gap.
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
	l.removed = l.after
	l.d.metrics.parked.WithLabelValues(l.key.endpoint).Add(float64(n))
	l.log().ErrorContext(ctx, "events are parked: the endpoint did not take them for too long",
		slog.Int64("events", n), slog.Any("error", reason))
}

// returnToMemory ends the use of the table, unless inserts are
// pending or were made since.
func (l *lane) returnToMemory(commits int) bool {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.spills == commits && l.commits == commits {
		l.spilled = false
	}
	return !l.spilled
}

// done records that n rows up to a number are finished.
func (l *lane) done(upTo, n int64) {
	l.after = max(l.after, upTo)
	l.d.mu.Lock()
	l.waiting -= n
	l.d.mu.Unlock()
}

// forget deletes the delivered rows, also while the process
// stops: rows left would be delivered again.
func (l *lane) forget() error {
	if l.removed >= l.after {
		return nil
	}
	err := l.d.store.remove(l.d.finishing, l.key, l.removed, l.after)
	if err == nil {
		l.removed = l.after
	}
	return err
}

// delivered records a delivery, which also reports the gap before it.
func (l *lane) delivered() {
	l.fails = 0
	if l.gap != nil && l.d.store.announced(l.d.finishing, l.key) == nil {
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
