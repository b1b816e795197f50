// Package adder adds up what the readers of the claim streams have read, until a flush takes all of it.
//
// It is built like java.util.concurrent.atomic.LongAdder (Lea, JSR 166): a cell per writer of its own, so that two readers
// never wait for each other, Sum to look at all cells, and SumThenReset to take what they hold. A cell holds events beside
// sums: MySQL gets both in one transaction.
//
// A cell belongs to one partition. Its reader adds whole reads, in the order of the stream. Each read belongs to a turn:
// after an error the reader begins the next turn at MySQL's offset, the cell is emptied, and what is left of older turns is
// refused. So a cell holds exactly what follows the offset.
package adder

import (
	"context"
	"errors"
	"sync"
	"time"

	"dibs/models"
)

// ErrTurn says that the turn of a reader is over: it begins the next one at MySQL's offset.
var ErrTurn = errors.New("adder: the turn is over")

// Taken is what a flush takes of a cell.
type Taken struct {
	Partition int
	Turn      int64
	From      models.Offset // where MySQL has to be
	Upto      models.Offset // where it is then
	Reads     []*models.StreamRead
	Sums      map[Lot]*Tally // of the events that get a row, see HasRow
	Since     time.Time      // when the first entry came
}

// Pending is what waits in all cells.
type Pending struct {
	Entries int
	Oldest  time.Time // when the first of them came; zero if there are none
	IsFull  bool      // a cell takes no more
	IsMove  bool      // somebody waits for a move of units
	// IsAwaited: claims are answered once they are in MySQL, or lots are loaded: further loads wait for MySQL to be at the tip.
	IsAwaited bool
}

// Adder has a cell for each partition.
type Adder struct {
	cells []cell
	now   func() time.Time
	added chan struct{} // has a token when something came
}

// cell is what waits of one partition. No two share a cache line: they are written by different cores.
type cell struct {
	mu        sync.Mutex
	turn      int64
	active    bool // the turn goes on
	from      models.Offset
	upto      models.Offset
	reads     []*models.StreamRead
	sums      map[Lot]*Tally
	entries   int
	isMove    bool // it holds half of one
	isAwaited bool
	since     time.Time
	most      int
	freed     chan struct{} // closed when entries were taken, or the turn ended

	_ [64]byte
}

// New makes an adder that holds up to most entries, in equal parts of the partitions.
func New(partitions, most int, now func() time.Time) *Adder {
	a := &Adder{cells: make([]cell, partitions), now: now, added: make(chan struct{}, 1)}
	for i := range a.cells {
		a.cells[i].most = max(1, most/partitions)
		a.cells[i].freed = make(chan struct{})
	}
	return a
}

// Begin empties the cell of a partition and returns its next turn, whose first read follows from.
func (a *Adder) Begin(partition int, from models.Offset) (turn int64) {
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

// End ends a turn, unless a later one has begun.
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

// reset forgets what the cell holds and wakes its reader.
func (c *cell) reset() {
	c.reads = nil
	c.sums = nil
	c.entries = 0
	c.isMove = false
	c.isAwaited = false
	close(c.freed)
	c.freed = make(chan struct{})
}

// Room waits until a cell takes entries, and returns how many. Errors: ErrTurn, and why ctx ended.
func (a *Adder) Room(ctx context.Context, partition int, turn int64) (int, error) {
	c := &a.cells[partition]
	for {
		room, freed, err := c.room(turn)
		if err != nil || room > 0 {
			return room, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (c *cell) room(turn int64) (room int, freed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.active || c.turn != turn {
		return 0, nil, ErrTurn
	}
	return c.most - c.entries, c.freed, nil
}

// Add adds a read that follows the one before, and retains it. Errors: ErrTurn.
func (a *Adder) Add(read *models.StreamRead) error {
	c := &a.cells[read.Partition]
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.active || c.turn != read.Turn {
		return ErrTurn
	}
	if c.entries == 0 {
		c.since = a.now()
		c.sums = make(map[Lot]*Tally)
	}
	c.add(read)
	select {
	case a.added <- struct{}{}:
	default:
	}
	return nil
}

func (c *cell) add(read *models.StreamRead) {
	var sum *Tally // of the lot of the event before: in a rush nearly all have the same one
	var last Lot
	for i := range read.Events {
		e := &read.Events[i]
		c.isAwaited = c.isAwaited || e.IsAwaited() || e.Type == models.EventLotLoaded
		if e.Unreadable != "" || !HasRow(&e.Event) {
			continue
		}
		lot := LotOf(&e.Event)
		if sum == nil || lot != last {
			sum = c.sums[lot]
			last = lot
		}
		if sum == nil {
			sum = &Tally{}
			c.sums[lot] = sum
		}
		sum.Add(&e.Event)
		c.isMove = c.isMove || e.IsMove()
	}
	c.reads = append(c.reads, read)
	c.entries += len(read.Events)
	c.upto = read.Upto
}

// HasRow reports whether MySQL gets a row of an event.
func HasRow(e *models.Event) bool { return e.Type == models.EventClaimAccepted || e.IsMove() }

// Added has a token when something was added since it was taken.
func (a *Adder) Added() <-chan struct{} { return a.added }

// Sum says what waits, without taking it.
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

// Empty lists the cells whose turn goes on and that hold nothing.
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

// SumThenReset takes what all cells hold. Cells without entries are left out.
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
