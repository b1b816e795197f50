package claiming

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"dibs/api/coalesce"
	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
)

const (
	// rowWait is how long an answer waits for its row.
	rowWait = 2 * time.Second
	// rowsMax bounds the waiting claims, and so the ids of one query.
	// Claims already sent when it is reached may exceed it.
	rowsMax = 10_000
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

// Rows knows which claims MySQL has.
type Rows interface {
	// Committed returns those of ids whose row MySQL has committed.
	Committed(ctx context.Context, ids []string) (there []string, err error)
	// Signaled returns, for each partition, a value that changes when
	// MySQL has applied more. It only hints when to query.
	Signaled(ctx context.Context, partitions []int) []string
}

// rows delays answers until MySQL has committed the claims' rows. One query
// after each flush covers all waiting claims. A nil rows delays nothing.
type rows struct {
	cfg     *Config
	metrics *metrics
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

func newRows(cfg *Config, m *metrics) *rows {
	if cfg.Rows == nil {
		return nil
	}
	return &rows{
		cfg: cfg, metrics: m, logSome: rate.Sometimes{Interval: time.Second}, waiting: make(map[string]*row), signaled: make(map[int]string),
	}
}

// isFull reports whether too many claims wait to send another.
func (r *rows) isFull() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) >= rowsMax
}

// await waits until MySQL has the accepted claims. Claims whose rows
// aren't known in time get the outcome unknown.
func (r *rows) await(ctx context.Context, sent []sentClaim) {
	if r == nil {
		return
	}
	sent = slices.DeleteFunc(slices.Clone(sent), func(c sentClaim) bool {
		return c.ticket.Err != nil || !c.ticket.Reply.Outcome.Took()
	})
	if len(sent) == 0 {
		return
	}
	started := r.cfg.Clock()
	ctx, cancel := context.WithTimeout(ctx, rowWait)
	defer cancel()
	for i, w := range r.enter(sent) {
		select {
		case <-w.committed:
		case <-ctx.Done():
		}
		r.leave(&sent[i], w)
	}
	took := r.cfg.Clock().Sub(started).Seconds()
	for range sent {
		r.metrics.rowWait.Observe(took)
	}
}

func (r *rows) enter(sent []sentClaim) []*row {
	r.mu.Lock()
	defer r.mu.Unlock()
	entered := make([]*row, len(sent))
	for i, c := range sent {
		id := c.ticket.Reply.Claim.ID
		w := r.waiting[id]
		if w == nil {
			w = &row{committed: make(chan struct{}), partition: c.shard.meta.Partition}
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

// leave ends a wait. Only an answered claim advances the position that this
// process has seen. An unanswered claim that Redis loses isn't missing.
func (r *rows) leave(c *sentClaim, w *row) {
	reply := &c.ticket.Reply
	switch {
	case w.isCommitted() && reply.Outcome == models.OutcomeClaimed:
		c.shard.latest.advance(lua.Position{Epoch: reply.Epoch, Seq: reply.Claim.Seq})
		return
	case w.isCommitted():
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w.waiters--
	if w.waiters == 0 && r.waiting[reply.Claim.ID] == w {
		delete(r.waiting, reply.Claim.ID)
	}
	c.ticket.Answer = coalesce.Answer{Err: errNoRow}
}

// ask queries for all waiting claims whenever MySQL has applied more,
// until none waits.
func (r *rows) ask() {
	ctx := context.Background()
	asked := r.cfg.Clock()
	for pause := signalFirst; ; pause = min(pause+time.Millisecond, signalSlowest) {
		_ = sleep.For(ctx, pause) // ctx never ends
		partitions := r.partitions()
		if len(partitions) == 0 {
			return
		}
		now := r.cfg.Clock()
		if !r.hasMoved(partitions, r.cfg.Rows.Signaled(ctx, partitions)) && now.Sub(asked) < askAnyway {
			continue
		}
		asked = now
		pause = signalFirst
		r.askNow(ctx)
	}
}

// partitions are those with waiting claims. If there are none, ask ends.
func (r *rows) partitions() []int {
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
func (r *rows) hasMoved(partitions []int, signaled []string) (moved bool) {
	for i, partition := range partitions {
		moved = moved || r.signaled[partition] != signaled[i]
		r.signaled[partition] = signaled[i]
	}
	return moved
}

func (r *rows) askNow(ctx context.Context) {
	r.mu.Lock()
	ids := slices.Collect(maps.Keys(r.waiting))
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	there, err := r.cfg.Rows.Committed(ctx, ids)
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
