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

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
)

const (
	// rowWait is how long a claim is held for its row.
	rowWait = 2 * time.Second
	// rowsMax bounds the claims that wait, and so the ids of one question.
	// Those that are on their way when it is reached come on top.
	rowsMax = 10_000
	// While claims wait, signals are read so often: soon after a question,
	// and then less often.
	signalFirst   = 2 * time.Millisecond
	signalSlowest = 10 * time.Millisecond
	// askAnyway is when the next question comes without a signal.
	askAnyway = 100 * time.Millisecond
	// askTimeout bounds a question.
	askTimeout = time.Second
)

// errNoRow says that a claim was made, and that MySQL is not known to have
// it.
var errNoRow = fmt.Errorf("%w: mysql has not committed the claim's row in time", lua.ErrOutcomeUnknown)

// Rows knows which claims MySQL has.
type Rows interface {
	// Committed returns those of some claims whose row MySQL has
	// committed.
	Committed(ctx context.Context, ids []string) (there []string, err error)
	// Signaled returns for partitions what changes when MySQL has applied
	// more. It is a hint when to ask.
	Signaled(ctx context.Context, partitions []int) []string
}

// rows holds the answers to claims until MySQL has committed their rows.
// One question after each flush asks for all that wait. A nil one holds
// nothing.
type rows struct {
	cfg     *Config
	metrics *metrics
	logSome rate.Sometimes // a MySQL that is away fails every question

	mu       sync.Mutex
	waiting  map[string]*row // by the claim's id
	isAsking bool
	signaled map[int]string // by partition, when MySQL was asked last; only ask uses it
}

// row is the row of a claim that is waited for, by each request for the
// claim.
type row struct {
	committed chan struct{} // closed when it is
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

// isFull reports whether so many claims wait that another need not be
// sent.
func (r *rows) isFull() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) >= rowsMax
}

// await waits until MySQL has the claims that were taken. Those that it is
// not known to have in time get the outcome unknown.
func (r *rows) await(ctx context.Context, sent []sentClaim) {
	if r == nil {
		return
	}
	sent = slices.DeleteFunc(slices.Clone(sent), func(c sentClaim) bool {
		return c.ticket.answer.err != nil || !c.ticket.answer.reply.Outcome.Took()
	})
	if len(sent) == 0 {
		return
	}
	began := r.cfg.Clock()
	ctx, cancel := context.WithTimeout(ctx, rowWait)
	defer cancel()
	for i, w := range r.enter(sent) {
		select {
		case <-w.committed:
		case <-ctx.Done():
		}
		r.leave(&sent[i], w)
	}
	took := r.cfg.Clock().Sub(began).Seconds()
	for range sent {
		r.metrics.rowWait.Observe(took)
	}
}

// enter has claims asked for.
func (r *rows) enter(sent []sentClaim) []*row {
	r.mu.Lock()
	defer r.mu.Unlock()
	entered := make([]*row, len(sent))
	for i, c := range sent {
		id := c.ticket.answer.reply.Claim.ID
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

// leave ends a wait. A process has seen only what it answered: a claim
// that Redis lost and nobody was told of is not missing.
func (r *rows) leave(c *sentClaim, w *row) {
	reply := &c.ticket.answer.reply
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
	c.ticket.answer = answer{err: errNoRow}
}

// ask asks for all claims that wait, whenever MySQL has applied more,
// until none waits.
func (r *rows) ask() {
	ctx := context.Background()
	asked := r.cfg.Clock()
	for pause := signalFirst; ; pause = min(pause+time.Millisecond, signalSlowest) {
		_ = sleep.For(ctx, pause) // ctx does not end
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

// partitions are those with claims that wait. If there are none, nobody
// asks.
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

// hasMoved reports whether MySQL has applied more of some partition since
// it was asked last.
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
