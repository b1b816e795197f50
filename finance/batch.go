package finance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"dibs/consumer"
	"dibs/internal/sqlstore"
)

// writeTimeout bounds a transaction with its retries. After it the events
// are redelivered.
const writeTimeout = 30 * time.Second

// Two different events in one batch have the same id or packet. The second
// is judged after the first has its entry.
var (
	errSameID     = errors.New("finance: two different events with one id at once")
	errSamePacket = errors.New("finance: two claims of one packet at once")
)

// batch is the entries that are credited together, sorted by id and unique,
// with the submissions waiting for each.
type batch struct {
	entries []Entry
	waiting map[string][]*submission
}

// newBatch sorts entries by id, the primary key, so that all transactions
// lock in one order.
func newBatch(submissions []*submission) *batch {
	b := &batch{waiting: make(map[string][]*submission, len(submissions))}
	packets := make(map[packetKey]string) // the claims that take them
	for _, s := range submissions {
		id := s.entry.ClaimID
		before := b.waiting[id]
		packet, isOfPacket := s.entry.packet()
		claim, isTaken := packets[packet]
		switch {
		case isOfPacket && isTaken && claim != id:
			s.done <- errSamePacket
			continue
		case len(before) == 0:
			if isOfPacket {
				packets[packet] = id
			}
			b.entries = append(b.entries, s.entry)
		case !before[0].entry.same(&s.entry):
			s.done <- errSameID
			continue
		}
		b.waiting[id] = append(before, s)
	}
	slices.SortFunc(b.entries, func(x, y Entry) int { return cmp.Compare(x.ClaimID, y.ClaimID) })
	return b
}

func (b *batch) answer(entries []Entry, result error) {
	for i := range entries {
		for _, s := range b.waiting[entries[i].ClaimID] {
			s.done <- result
		}
	}
}

func (b *Books) credit(ctx context.Context, submissions []*submission) {
	started := time.Now()
	all := newBatch(submissions)
	b.write(ctx, all, all.entries)
	b.metrics.seconds.Observe(time.Since(started).Seconds())
}

func (b *Books) write(ctx context.Context, all *batch, entries []Entry) {
	err := b.commit(ctx, entries)
	switch failure := sqlstore.FailureOf(err); {
	case err == nil:
		b.metrics.entries.Add(float64(len(entries)))
		b.metrics.totals.credited.Add(int64(len(entries)))
		all.answer(entries, nil)
	case failure == sqlstore.FailureDuplicate:
		b.writeUnknown(ctx, all, entries, err)
	case failure == sqlstore.FailureData || errors.Is(err, errOverflow):
		b.bisect(ctx, all, entries, err)
	default:
		b.metrics.retries.Inc()
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "crediting failed, the events will be delivered again",
			slog.Int("events", len(entries)), slog.Any("error", err))
		all.answer(entries, err)
	}
}

// writeUnknown answers for entries that exist already, and writes the
// others. cause is the duplicate-key error.
func (b *Books) writeUnknown(ctx context.Context, all *batch, entries []Entry, cause error) {
	known, paid, err := b.lookUp(ctx, entries)
	if err == nil && len(known)+len(paid) == 0 {
		err = cause // its row was deleted since
	}
	if err != nil {
		all.answer(entries, err)
		return
	}
	var unknown []Entry
	for i := range entries {
		one := entries[i : i+1]
		booked, isKnown := known[one[0].ClaimID]
		packet, _ := one[0].packet()
		other, isPaid := paid[packet]
		switch {
		case !isKnown && isPaid:
			all.answer(one, b.refuse(fmt.Errorf("%w: packet %s of campaign %s was credited to %q for claim %s",
				ErrPaid, packet.packetID, packet.campaignID, other.UserID, other.ClaimID)))
		case !isKnown:
			unknown = append(unknown, one[0])
		case booked.isGivenUp() || booked.same(&one[0]):
			b.metrics.redelivered.Inc()
			b.metrics.totals.redelivered.Add(1)
			all.answer(one, nil)
		default:
			all.answer(one, b.refuse(conflict(&booked)))
		}
	}
	if len(unknown) > 0 {
		b.write(ctx, all, unknown)
	}
}

// bisect credits the halves of entries that the database refuses, down to a
// single refused entry.
func (b *Books) bisect(ctx context.Context, all *batch, entries []Entry, cause error) {
	if len(entries) == 1 {
		all.answer(entries, b.refuse(cause))
		return
	}
	b.write(ctx, all, entries[:len(entries)/2])
	b.write(ctx, all, entries[len(entries)/2:])
}

// refuse marks an error that no redelivery can fix.
func (b *Books) refuse(err error) error {
	b.metrics.totals.refused.Add(1)
	return consumer.Permanent(err)
}

func conflict(booked *Entry) error {
	return fmt.Errorf("%w: it credits %d %s of campaign %s to %q",
		ErrConflict, booked.Amount, booked.Currency, booked.CampaignID, booked.UserID)
}
