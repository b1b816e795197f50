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
	// rowWait is how long a claim is held for its row. The consumer flushes within milliseconds while it can.
	rowWait = 2 * time.Second
	// rowsMax bounds the claims that wait in this process, and so the ids of one question.
	rowsMax = 10_000
	// While claims wait, the signals are read so often: soon after a question, and then less often.
	signalFirst   = 2 * time.Millisecond
	signalSlowest = 10 * time.Millisecond
	// askAnyway is how long after a question the next one comes without a signal.
	askAnyway = 100 * time.Millisecond
	// askTimeout bounds a question.
	askTimeout = time.Second
)

// errNoRow says that a claim was made, and that MySQL is not known to have it.
var errNoRow = fmt.Errorf("%w: mysql has not committed the claim's row in time", lua.ErrOutcomeUnknown)

// Rows knows which claims MySQL has.
type Rows interface {
	// Committed returns those of some claims whose row MySQL has committed.
	Committed(ctx context.Context, ids []string) (there []string, err error)
	// Signaled returns for partitions what changes when MySQL has applied more. It is a hint when to ask.
	Signaled(ctx context.Context, partitions []int) []string
}

// rows holds the answers to claims until MySQL has committed their rows. All claims that wait in this process are asked for by one
// question, after each flush. A nil one holds nothing.
type rows struct {
	cfg     *Config
	metrics *metrics
	logSome rate.Sometimes // a MySQL that is away fails every question

	mu          sync.Mutex
	waiting     map[string][]*heldClaim // by id: a request that is sent again waits for the same claim
	byPartition map[int]int             // how many of them
	isAsking    bool
	signaled    map[int]string // by partition, when MySQL was asked last; only ask uses it
}

func newRows(cfg *Config, m *metrics) *rows {
	if cfg.Rows == nil {
		return nil
	}
	return &rows{
		cfg: cfg, metrics: m, logSome: rate.Sometimes{Interval: time.Second}, waiting: make(map[string][]*heldClaim),
		byPartition: make(map[int]int), signaled: make(map[int]string),
	}
}

// heldClaim is a claim that waits for its row.
type heldClaim struct {
	sentClaim

	caller *rowWaiter
	hasRow bool
}

func (h *heldClaim) id() string { return h.ticket.answer.reply.Claim.ID }

// rowWaiter is a caller with claims that wait.
type rowWaiter struct {
	open int           // claims without a row
	done chan struct{} // closed when there are none
}

// isFull reports whether so many claims wait that another one need not be sent.
func (r *rows) isFull() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) >= rowsMax
}

// await waits until MySQL has the claims that were taken. Those that it is not known to have in time get the outcome unknown.
func (r *rows) await(ctx context.Context, sent []sentClaim) {
	if r == nil {
		return
	}
	caller := &rowWaiter{done: make(chan struct{})}
	var held []*heldClaim
	for _, one := range sent {
		if a := &one.ticket.answer; a.err == nil && a.reply.Outcome.Took() {
			held = append(held, &heldClaim{sentClaim: one, caller: caller})
		}
	}
	if len(held) == 0 {
		return
	}
	began := r.cfg.Clock()
	if r.enter(held) {
		ctx, cancel := context.WithTimeout(ctx, rowWait)
		defer cancel()
		select {
		case <-caller.done:
		case <-ctx.Done():
		}
		r.leave(held)
	}
	took := r.cfg.Clock().Sub(began).Seconds()
	for _, h := range held {
		h.answer()
		r.metrics.rowWait.Observe(took)
	}
}

// answer makes a claim known as answered, or its outcome unknown. A process has seen only what it answered: a claim that Redis lost and
// nobody was told of is not missing.
func (h *heldClaim) answer() {
	if !h.hasRow {
		h.ticket.answer = answer{err: errNoRow}
		return
	}
	reply := &h.ticket.answer.reply
	if reply.Outcome == models.OutcomeClaimed {
		h.shard.latest.advance(lua.Position{Epoch: reply.Epoch, Seq: reply.Claim.Seq})
	}
}

// enter has claims asked for; false says that too many wait.
func (r *rows) enter(held []*heldClaim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting)+len(held) > rowsMax+batchMax {
		return false
	}
	for _, h := range held {
		h.caller.open++
		r.waiting[h.id()] = append(r.waiting[h.id()], h)
		r.byPartition[h.shard.meta.Partition]++
	}
	if !r.isAsking {
		r.isAsking = r.cfg.Workers.Go(r.ask)
	}
	return true
}

// leave ends a wait.
func (r *rows) leave(held []*heldClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range held {
		if !h.hasRow {
			others := slices.DeleteFunc(r.waiting[h.id()], func(other *heldClaim) bool { return other == h })
			r.set(h.id(), others)
			r.forget(h)
		}
	}
}

func (r *rows) set(id string, waiting []*heldClaim) {
	r.waiting[id] = waiting
	if len(waiting) == 0 {
		delete(r.waiting, id)
	}
}

func (r *rows) forget(h *heldClaim) {
	partition := h.shard.meta.Partition
	r.byPartition[partition]--
	if r.byPartition[partition] == 0 {
		delete(r.byPartition, partition)
	}
}

// ask asks for all claims that wait, whenever MySQL has applied more, until none waits.
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

// partitions are those with claims that wait. If there are none, nobody asks any more.
func (r *rows) partitions() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isAsking = len(r.byPartition) > 0
	return slices.Collect(maps.Keys(r.byPartition))
}

// hasMoved reports whether MySQL has applied more of some partition than when it was asked last.
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
		for _, h := range r.waiting[id] {
			h.hasRow = true
			r.forget(h)
			h.caller.open--
			if h.caller.open == 0 {
				close(h.caller.done)
			}
		}
		delete(r.waiting, id)
	}
}
