// Package rows delays answers to claims until MySQL has committed their
// rows. One query after each flush covers all waiting claims.
package rows

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"dibs/api/coalesce"
	"dibs/api/workers"
	"dibs/internal/sleep"
	"dibs/lua"
)

const (
	// Max bounds the waiting claims, and so the ids of one query.
	// Claims already sent when it is reached may exceed it.
	Max = 10_000
	// timeout is how long an answer waits for its row.
	timeout = 2 * time.Second
	// Signals are read at these intervals while claims wait: fast
	// after a query, then slower.
	signalFirst   = 2 * time.Millisecond
	signalSlowest = 10 * time.Millisecond
	// askAnyway is the time to the next query without a signal.
	askAnyway = 100 * time.Millisecond
	// askTimeout bounds a query.
	askTimeout = time.Second
)

// errNoRow means the claim was made, but MySQL isn't known to have it.
var errNoRow = fmt.Errorf("%w: mysql has not committed the claim's row in time", lua.ErrOutcomeUnknown)

// Reader knows which claims MySQL has.
type Reader interface {
	// Committed returns those of ids whose row MySQL has committed.
	Committed(ctx context.Context, ids []string) (there []string, err error)
	// Signaled returns, for each partition, a value that changes when
	// MySQL has applied more. It only hints when to query.
	Signaled(ctx context.Context, partitions []int) []string
}

// Config configures a Waiter.
type Config struct {
	Reader  Reader // nil: nothing is to wait for
	Workers *workers.Group
	Waited  prometheus.Observer // of seconds
	Logger  *slog.Logger
	Clock   func() time.Time
}

// Claim is an accepted claim.
type Claim struct {
	Ticket    *coalesce.Ticket
	Partition int
}

// Waiter waits for rows. A nil one is never full.
type Waiter struct {
	cfg     Config
	logSome rate.Sometimes // an unreachable MySQL fails every query

	mu       sync.Mutex
	waiting  map[string]*row // by claim id
	isAsking bool
	signaled map[int]string // by partition, as of the last query; only ask uses it
}

// row is a claim's row that one or more requests wait for.
type row struct {
	committed chan struct{} // closed when committed
	partition int
	waiters   int
}

func (w *row) isCommitted() bool {
	select {
	case <-w.committed:
		return true
	default:
		return false
	}
}

// New returns a Waiter, or nil without a Reader.
func New(cfg Config) *Waiter {
	if cfg.Reader == nil {
		return nil
	}
	return &Waiter{
		cfg: cfg, logSome: rate.Sometimes{Interval: time.Second}, waiting: make(map[string]*row), signaled: make(map[int]string),
	}
}

// IsFull reports whether too many claims wait to send another.
func (r *Waiter) IsFull() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) >= Max
}

// Await waits until MySQL has the claims, and calls committed for each by its
// index. Those whose rows aren't known in time get the outcome unknown.
func (r *Waiter) Await(ctx context.Context, claims []Claim, committed func(i int)) {
	if len(claims) == 0 {
		return
	}
	started := r.cfg.Clock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for i, w := range r.enter(claims) {
		select {
		case <-w.committed:
		case <-ctx.Done():
		}
		if w.isCommitted() {
			committed(i)
		} else {
			r.giveUp(claims[i].Ticket, w)
		}
	}
	took := r.cfg.Clock().Sub(started).Seconds()
	for range claims {
		r.cfg.Waited.Observe(took)
	}
}

func (r *Waiter) enter(claims []Claim) []*row {
	r.mu.Lock()
	defer r.mu.Unlock()
	entered := make([]*row, len(claims))
	for i, c := range claims {
		id := c.Ticket.Reply.Claim.ID
		w := r.waiting[id]
		if w == nil {
			w = &row{committed: make(chan struct{}), partition: c.Partition}
			r.waiting[id] = w
		}
		w.waiters++
		entered[i] = w
	}
	if !r.isAsking {
		r.isAsking = r.cfg.Workers.Go(r.ask)
	}
	return entered
}

func (r *Waiter) giveUp(t *coalesce.Ticket, w *row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.waiters--
	if id := t.Reply.Claim.ID; w.waiters == 0 && r.waiting[id] == w {
		delete(r.waiting, id)
	}
	t.Answer = coalesce.Answer{Err: errNoRow}
}

// ask queries for all waiting claims whenever MySQL has applied more,
// until none waits.
func (r *Waiter) ask() {
	ctx := context.Background()
	asked := r.cfg.Clock()
	for pause := signalFirst; ; pause = min(pause+time.Millisecond, signalSlowest) {
		_ = sleep.For(ctx, pause) // ctx never ends
		partitions := r.partitions()
		if len(partitions) == 0 {
			return
		}
		now := r.cfg.Clock()
		if !r.hasMoved(partitions, r.cfg.Reader.Signaled(ctx, partitions)) && now.Sub(asked) < askAnyway {
			continue
		}
		asked = now
		pause = signalFirst
		r.askNow(ctx)
	}
}

// partitions are those with waiting claims. If there are none, ask ends.
func (r *Waiter) partitions() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isAsking = len(r.waiting) > 0
	found := make(map[int]struct{})
	for _, w := range r.waiting {
		found[w.partition] = struct{}{}
	}
	return slices.Collect(maps.Keys(found))
}

// hasMoved reports whether MySQL applied more of a partition since the
// last query.
func (r *Waiter) hasMoved(partitions []int, signaled []string) (moved bool) {
	for i, partition := range partitions {
		moved = moved || r.signaled[partition] != signaled[i]
		r.signaled[partition] = signaled[i]
	}
	return moved
}

func (r *Waiter) askNow(ctx context.Context) {
	r.mu.Lock()
	ids := slices.Collect(maps.Keys(r.waiting))
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	there, err := r.cfg.Reader.Committed(ctx, ids)
	if err != nil {
		r.logSome.Do(func() {
			r.cfg.Logger.WarnContext(ctx, "mysql could not be asked which claims it has, their outcome is unknown until it answers",
				slog.Int("claims", len(ids)), slog.Any("error", err))
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range there {
		if w := r.waiting[id]; w != nil {
			close(w.committed)
			delete(r.waiting, id)
		}
	}
}
