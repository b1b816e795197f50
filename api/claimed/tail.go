package claimed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"dibs/models"
)

const (
	// tailPage is how many entries are read at a time: a third of a megabyte, and Redis is held for about a millisecond.
	tailPage = 1000
	// tailReaders bounds the partitions that are read at once.
	tailReaders = 16
	// tailGoes is how often a round begins anew when what it knew of a stream turns out to be gone.
	tailGoes = 2
)

// tail finds claims that MySQL may not have yet: those whose events the group that writes them has not acknowledged. What
// is acknowledged is committed, so a claim is in MySQL, or here, or there is none. The index is filled when somebody asks, not
// by claims, and let go when nobody has asked for a while.
type tail struct {
	streams Streams
	cfg     Config
	rounds  rounds[*tailIndex]
	held    prometheus.Gauge

	mu    sync.Mutex
	index *tailIndex // nil: nothing is known
	letGo *time.Timer
}

func newTail(cfg Config, held prometheus.Gauge) *tail {
	t := &tail{streams: cfg.Streams, cfg: cfg, held: held}
	t.rounds = rounds[*tailIndex]{work: t.refresh, crew: cfg.Workers}
	return t
}

// find looks for a claim among those that MySQL may not have yet. Nil without an error says: a claim of this id, if one was
// answered before the call, is in MySQL by now. Errors: errTailFull, and those of Streams.
func (t *tail) find(ctx context.Context, id string) (*models.Event, error) {
	index, err := t.rounds.ask(ctx)
	if err != nil && !errors.Is(err, errTailFull) {
		return nil, err
	}
	if e := index.claim(id); e != nil {
		return e, nil
	}
	return nil, err
}

// ofUser gives the user's claims that MySQL may not have yet, in no order: all that were answered before the call. Errors as
// find.
func (t *tail) ofUser(ctx context.Context, userID string) ([]*models.Event, error) {
	index, err := t.rounds.ask(ctx)
	if err != nil {
		return nil, err
	}
	return index.ofUser(userID), nil
}

// refresh is one round: it brings the index up to date.
func (t *tail) refresh() (*tailIndex, error) {
	ctx, cancel := context.WithTimeout(context.Background(), t.cfg.CallTimeout)
	defer cancel()
	var index *tailIndex
	var err error
	for range tailGoes {
		index = t.current()
		if err = t.catchUp(ctx, index); !errors.Is(err, errTailGone) {
			break
		}
		t.forget(index)
	}
	t.keep(index)
	return index, err
}

// current is the index to work on.
func (t *tail) current() *tailIndex {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index == nil {
		t.index = newTailIndex(t.streams.Partitions(), t.cfg.TailMax)
	}
	if t.letGo != nil {
		t.letGo.Stop()
	}
	return t.index
}

// keep keeps an index for a while.
func (t *tail) keep(index *tailIndex) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index == index {
		t.held.Set(float64(index.size()))
		t.letGo = time.AfterFunc(t.cfg.TailIdle, func() { t.forget(index) })
	}
}

// forget lets an index go. Who still reads it goes on reading what it held.
func (t *tail) forget(index *tailIndex) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index == index {
		t.index = nil
		t.held.Set(0)
	}
}

// catchUp drops what was acknowledged and reads what came, in all partitions: the id of a claim does not tell its own.
func (t *tail) catchUp(ctx context.Context, index *tailIndex) error {
	var full atomic.Bool
	var g errgroup.Group
	g.SetLimit(tailReaders)
	for p := range t.streams.Partitions() {
		g.Go(func() error {
			err := t.catchUpPart(ctx, index, p)
			switch {
			case errors.Is(err, errTailFull):
				full.Store(true)
			case err != nil:
				return fmt.Errorf("api: unsynced claims of partition %d: %w", p, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if full.Load() {
		return errTailFull
	}
	return nil
}

func (t *tail) catchUpPart(ctx context.Context, index *tailIndex, p int) error {
	unread, err := t.streams.Unread(ctx, p, t.cfg.Group)
	if err != nil {
		return err
	}
	from := index.advance(p, unread.First())
	for {
		page, err := t.streams.Entries(ctx, p, from, tailPage)
		if err != nil {
			return err
		}
		if from, err = index.add(p, page); err != nil {
			return err
		}
		if len(page) < tailPage {
			return nil
		}
	}
}
