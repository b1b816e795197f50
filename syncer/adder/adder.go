// Package adder collects what readers of the claim
// streams have read, until a flush takes it.
//
// It is built like java.util.concurrent.atomic.LongAdder (Lea, JSR
// 166). Each writer has its own cell, so readers never wait for each
// other. Sum inspects all cells. SumThenReset takes their content: sums
// and events, as MySQL gets both at once.
//
// A cell belongs to one partition. Its reader adds whole reads in the
// order of the stream. Each read belongs to a turn. After an error the
// reader starts the next turn at MySQL's offset. Then the cell is
// emptied, and reads of older turns are refused. So a cell contains
// exactly what follows the offset.
package adder

import (
	"context"
	"errors"
	"sync"
	"time"

	"dibs/models/event"
)

// ErrTurn reports that a reader's turn is
// over. The next one starts at MySQL's offset.
var ErrTurn = errors.New("adder: the turn is over")

// Taken is what a flush takes from a cell.
type Taken struct {
	Partition int
	Turn      int64
	From      event.Offset // MySQL's offset before the flush
	Upto      event.Offset // MySQL's offset after it
	Reads     []*event.Read
	Sums      Sums      // of the events that get a row, see HasRow
	Since     time.Time // arrival of the first entry
}

// Pending is the state of all cells.
type Pending struct {
	Entries int
	Oldest  time.Time // arrival of the first one, or zero
	IsFull  bool      // a cell is full
	IsMove  bool      // a move of units waits for MySQL
	// IsAwaited: answers wait for MySQL, or a lot
	// was loaded and others will need the tip.
	IsAwaited bool
}

// Adder holds events of a batch per lot, a cell a partition, until they are
// taken for a flush.
type Adder struct {
	cells []cell
	now   func() time.Time
	added chan struct{} // has a token after an Add
}

// cell is one partition's. No two share a
// cache line, as different cores write them.
type cell struct {
	mu        sync.Mutex
	turn      int64
	active    bool // the turn is not over
	from      event.Offset
	upto      event.Offset
	reads     []*event.Read
	sums      Sums
	entries   int
	isMove    bool // it contains half of a move
	isAwaited bool
	since     time.Time
	most      int
	freed     chan struct{} // closed when the cell is emptied

	_ [64]byte
}

// New returns an adder of up to most entries, shared equally by the
// partitions.
func New(partitions, most int, now func() time.Time) *Adder {
	a := &Adder{cells: make([]cell, partitions), now: now, added: make(chan struct{}, 1)}
	for i := range a.cells {
		a.cells[i].most = max(1, most/partitions)
		a.cells[i].freed = make(chan struct{})
	}
	return a
}

// Begin empties the cell of a partition and
// returns its next turn, which reads after from.
func (a *Adder) Begin(partition int, from event.Offset) (turn int64) {
	c := &a.cells[partition]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	c.turn++
	c.active = true
	c.from = from
	c.upto = from
	return c.turn
}

// End ends a turn, unless a later one has started.
func (a *Adder) End(partition int, turn int64) {
	c := &a.cells[partition]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn == turn {
		c.end()
	}
}

func (c *cell) end() {
	c.active = false
	c.reset()
}

func (c *cell) reset() {
	c.reads = nil
	c.sums = nil
	c.entries = 0
	c.isMove = false
	c.isAwaited = false
	close(c.freed)
	c.freed = make(chan struct{})
}

// Free waits for free capacity in a cell, and returns how many entries
// fit. Errors: ErrTurn, and the cause why ctx ended.
func (a *Adder) Free(ctx context.Context, partition int, turn int64) (int, error) {
	c := &a.cells[partition]
	for {
		free, freed, err := c.free(turn)
		if err != nil || free > 0 {
			return free, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (c *cell) free(turn int64) (n int, freed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.active || c.turn != turn {
		return 0, nil, ErrTurn
	}
	return c.most - c.entries, c.freed, nil
}

// Add adds the next read, and retains it. Errors: ErrTurn.
func (a *Adder) Add(read *event.Read) error {
	c := &a.cells[read.Partition]
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.active || c.turn != read.Turn {
		return ErrTurn
	}
	if c.entries == 0 {
		c.since = a.now()
		c.sums = make(Sums)
	}
	c.add(read)
	select {
	case a.added <- struct{}{}:
	default:
	}
	return nil
}

func (c *cell) add(read *event.Read) {
	var sum *Tally // of the last event's lot: in a rush nearly all are of one
	var last Lot
	for i := range read.Events {
		e := &read.Events[i]
		c.isAwaited = c.isAwaited || e.IsAwaited() || e.Type == event.LotLoaded
		if e.Unreadable != "" || !HasRow(&e.Event) {
			continue
		}
		lot := LotOf(&e.Event)
		if sum == nil || lot != last {
			sum = c.sums.Of(lot)
			last = lot
		}
		sum.Add(&e.Event)
		c.isMove = c.isMove || e.IsMove()
	}
	c.reads = append(c.reads, read)
	c.entries += len(read.Events)
	c.upto = read.Upto
}

// HasRow reports whether an event has a row in MySQL.
func HasRow(e *event.Event) bool { return e.Type == event.ClaimAccepted || e.IsMove() }

// Added has a token if Add was called since the last one was received.
func (a *Adder) Added() <-chan struct{} { return a.added }

// Sum returns the state of all cells without taking their content.
func (a *Adder) Sum() (sum Pending) {
	for i := range a.cells {
		c := &a.cells[i]
		c.mu.Lock()
		sum.Entries += c.entries
		sum.IsFull = sum.IsFull || c.entries >= c.most
		sum.IsMove = sum.IsMove || c.isMove
		sum.IsAwaited = sum.IsAwaited || c.isAwaited
		if c.entries > 0 && (sum.Oldest.IsZero() || c.since.Before(sum.Oldest)) {
			sum.Oldest = c.since
		}
		c.mu.Unlock()
	}
	return sum
}

// Empty returns the empty cells of turns that are not over.
func (a *Adder) Empty() (all []Taken) {
	for i := range a.cells {
		c := &a.cells[i]
		c.mu.Lock()
		if c.active && c.entries == 0 {
			all = append(all, Taken{Partition: i, Turn: c.turn, From: c.from, Upto: c.upto})
		}
		c.mu.Unlock()
	}
	return all
}

// SumThenReset takes the content of all cells that have entries.
func (a *Adder) SumThenReset() (all []Taken) {
	for i := range a.cells {
		c := &a.cells[i]
		c.mu.Lock()
		if c.entries > 0 {
			all = append(all, Taken{
				Partition: i, Turn: c.turn, From: c.from, Upto: c.upto, Reads: c.reads, Sums: c.sums, Since: c.since,
			})
			c.from = c.upto
			c.reset()
		}
		c.mu.Unlock()
	}
	return all
}
