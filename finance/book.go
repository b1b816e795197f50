package finance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"dibs/consumer"
)

const (
	// triesMax bounds the attempts of a transaction that loses against others, or finds its entries there: then its events
	// come again, and others in between.
	triesMax   = 8
	retryFirst = 5 * time.Millisecond
	retryMost  = 250 * time.Millisecond
)

// errTwice says that two events of one id that differ came in one batch: the second is judged when the first has its entry.
var errTwice = errors.New("finance: two events with one id at once")

// lot is the entries of a batch that are not settled yet, sorted by id and no id twice, and who waits for each.
type lot struct {
	entries []Entry
	waiting map[string][]*submission
}

// book brings a batch into the books and tells everybody who waits what became of it.
func (b *Books) book(ctx context.Context, batch []*submission) {
	begun := time.Now()
	l := lotOf(batch)
	b.write(ctx, l, l.entries)
	b.metrics.seconds.Observe(time.Since(begun).Seconds())
}

// lotOf sorts a batch by id, which is the order of the key, so that transactions take their locks in one order.
func lotOf(batch []*submission) *lot {
	l := &lot{waiting: make(map[string][]*submission, len(batch))}
	for _, s := range batch {
		id := s.entry.ClaimID
		before := l.waiting[id]
		switch {
		case len(before) == 0:
			l.entries = append(l.entries, s.entry)
		case !before[0].entry.same(&s.entry):
			s.done <- errTwice
			continue
		}
		l.waiting[id] = append(before, s)
	}
	slices.SortFunc(l.entries, func(a, b Entry) int { return cmp.Compare(a.ClaimID, b.ClaimID) })
	return l
}

func (l *lot) settle(entry *Entry, err error) {
	for _, s := range l.waiting[entry.ClaimID] {
		s.done <- err
	}
}

// write credits entries and settles each of them. It tries again what may succeed at once; trouble that lasts is left to the
// consumer's back-off.
func (b *Books) write(ctx context.Context, l *lot, entries []Entry) {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = retryFirst, retryMost
	var err error
	for range triesMax {
		if len(entries) == 0 {
			return
		}
		err = b.commit(ctx, entries)
		switch failureOf(err) {
		case failureNone:
			b.metrics.entries.Add(float64(len(entries)))
			b.metrics.life.credited.Add(int64(len(entries)))
			settleAll(l, entries, nil)
			return
		case failureData:
			b.bisect(ctx, l, entries, err)
			return
		case failureDuplicate:
			known, lookErr := b.lookUp(ctx, entries)
			if lookErr != nil {
				settleAll(l, entries, lookErr)
				return
			}
			before := len(entries)
			if entries = b.sift(l, entries, known); len(entries) < before {
				continue
			}
		case failureClash:
		case failureTransient:
			b.complain(err, len(entries))
			settleAll(l, entries, err)
			return
		}
		b.metrics.retries.Inc()
		if !pause(ctx, waits.NextBackOff()) {
			break
		}
	}
	settleAll(l, entries, err)
}

func settleAll(l *lot, entries []Entry, err error) {
	for i := range entries {
		l.settle(&entries[i], err)
	}
}

// sift settles the entries that are in the books already, and returns the others.
func (b *Books) sift(l *lot, entries []Entry, known map[string]Entry) []Entry {
	var left []Entry
	for i := range entries {
		there, is := known[entries[i].ClaimID]
		switch {
		case !is:
			left = append(left, entries[i])
		case there.same(&entries[i]):
			b.metrics.redelivered.Inc()
			b.metrics.life.redelivered.Add(1)
			l.settle(&entries[i], nil)
		default:
			l.settle(&entries[i], b.refuse(conflict(&there)))
		}
	}
	return left
}

// refuse is for what no redelivery will cure.
func (b *Books) refuse(err error) error {
	b.metrics.life.refused.Add(1)
	return consumer.Permanent(err)
}

func conflict(there *Entry) error {
	return fmt.Errorf("%w: it credits %d %s of campaign %s to %q", ErrConflict, there.Amount, there.Currency, there.CampaignID, there.UserID)
}

// bisect credits the halves of a batch that the database refuses, down to the entry that it refuses alone.
func (b *Books) bisect(ctx context.Context, l *lot, entries []Entry, cause error) {
	if len(entries) == 1 {
		l.settle(&entries[0], b.refuse(cause))
		return
	}
	b.write(ctx, l, entries[:len(entries)/2])
	b.write(ctx, l, entries[len(entries)/2:])
}

func (b *Books) complain(err error, entries int) {
	b.metrics.retries.Inc()
	b.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "crediting failed, the events will come again",
		slog.Int("events", entries), slog.Any("error", err))
}

// pause waits; false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
