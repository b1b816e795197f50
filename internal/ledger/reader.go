package ledger

import (
	"context"
	"fmt"
	"iter"
	"time"

	"dibs/models"
	"dibs/models/event"

	"gorm.io/gorm"
)

const (
	rowsAtOnce    = 4000 // row limit in memory, over all lots of a campaign
	rowsAtOnceMin = 100  // rows of a statement, at least
)

// Reader reads ledgers. It is safe for concurrent use.
type Reader struct{ db *gorm.DB }

// New makes a Reader.
func New(db *gorm.DB) *Reader { return &Reader{db: db} }

// Page reads up to limit events of a campaign after a position. If the page
// is not full, every event before upto is in this page or an earlier one.
// Errors: models.ErrNotFound, *models.ArchivedError.
func (r *Reader) Page(
	ctx context.Context, campaignID string, after event.Place, limit int,
) (events []event.Event, upto time.Time, err error) {
	b, err := r.book(ctx, campaignID)
	if err != nil {
		return nil, upto, err
	}
	for e, err := range r.events(ctx, b, after, limit) {
		if err != nil {
			return nil, upto, err
		}
		events = append(events, *e)
		if len(events) == limit {
			break
		}
	}
	return events, b.upto, nil
}

// All iterates over the events of a campaign after a position, up to what is
// stored now. It keeps only a few thousand events in memory and stops after
// an error. Errors: as Page, before any event.
func (r *Reader) All(ctx context.Context, campaignID string, after event.Place) (iter.Seq2[*event.Event, error], error) {
	b, err := r.book(ctx, campaignID)
	if err != nil {
		return nil, err
	}
	return r.events(ctx, b, after, rowsAtOnce), nil
}

func (r *Reader) book(ctx context.Context, campaignID string) (*book, error) {
	found, err := r.books(ctx, []string{campaignID})
	if err != nil {
		return nil, err
	}
	b := found[campaignID]
	if b == nil {
		return nil, fmt.Errorf("ledger: %w: campaign %s", models.ErrNotFound, campaignID)
	}
	return b, nil
}

func (r *Reader) events(ctx context.Context, b *book, after event.Place, atOnce int) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		sources, err := r.sources(ctx, b, after, atOnce)
		if err != nil {
			yield(nil, err)
			return
		}
		last := after
		for {
			e, err := earliest(ctx, sources)
			if err != nil {
				yield(nil, err)
				return
			}
			if e == nil || !e.At.Before(b.upto) {
				return
			}
			position := event.PlaceOf(e)
			if position == last {
				continue // it was parked and got its row after all
			}
			last = position
			if !yield(e, nil) {
				return
			}
		}
	}
}

// earliest takes the first event of all sources, or returns nil.
func earliest(ctx context.Context, sources []*source) (*event.Event, error) {
	var first *source
	for _, s := range sources {
		if err := s.fill(ctx); err != nil {
			return nil, err
		}
		if len(s.events) > 0 && (first == nil || s.position.Before(first.position)) {
			first = s
		}
	}
	if first == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	return first.take(), nil
}
