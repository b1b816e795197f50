package writer

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"dibs/models"
)

// row is a claim on its way to MySQL. Its payload is needed only when it has to be parked.
type row struct {
	event   models.Event
	payload []byte
	trace   string // the traceparent of who waits for it, if it is traced
}

// tally is the sum of some claims of one campaign.
type tally struct {
	units, claims     int64
	firstSeq, lastSeq int64
	firstMs           int64 // when the earliest claim was made, since 1970

	transfers, moved int64 // debits and credits, and the units that the lot has more by them
}

func (t *tally) add(e *models.Event) {
	switch {
	case e.Type == models.EventUnitsDebited:
		t.merge(tally{transfers: 1, moved: -e.Quantity})
		return
	case e.IsTransfer():
		t.merge(tally{transfers: 1, moved: e.Quantity})
		return
	}
	t.merge(tally{units: e.Quantity, claims: 1, firstSeq: e.Seq, lastSeq: e.Seq, firstMs: e.At.UnixMilli()})
}

func (t *tally) merge(o tally) {
	t.transfers += o.transfers
	t.moved += o.moved
	if o.claims == 0 {
		return
	}
	if t.claims == 0 || o.firstSeq < t.firstSeq {
		t.firstSeq = o.firstSeq
	}
	if t.claims == 0 || o.firstMs < t.firstMs {
		t.firstMs = o.firstMs
	}
	t.lastSeq = max(t.lastSeq, o.lastSeq)
	t.units += o.units
	t.claims += o.claims
}

// cell holds rows and their sums by campaign, or by shard of a campaign, so that both leave the adder together. The callers of its
// rows wait for it.
type cell struct {
	rows  []row
	sums  map[string]*tally
	since time.Time // when the first row came

	last      string // the campaign of lastSum: in a rush nearly all rows have the same one
	lastShard int
	lastSum   *tally

	done  chan struct{}       // closed when err and later are set
	err   error               // nil: every row is committed or parked, but those in later
	later map[string]*waiting // claims that wait on, by campaign
}

func (c *cell) add(e *models.RawEvent) {
	c.rows = append(c.rows, row{event: e.Event, payload: e.Payload, trace: e.TraceParent})
	if c.lastSum == nil || c.last != e.CampaignID || c.lastShard != e.Shard {
		id := e.LotID()
		sum := c.sums[id]
		if sum == nil {
			sum = &tally{}
			c.sums[id] = sum
		}
		c.last = e.CampaignID
		c.lastShard = e.Shard
		c.lastSum = sum
	}
	c.lastSum.add(&e.Event)
}

// stripe is a part of the adder with a lock of its own: full cells, oldest first, and the one that fills.
type stripe struct {
	mu     sync.Mutex
	full   []*cell
	open   *cell
	closed bool

	_ [64]byte // stripes are written by different cores: no two share a cache line
}

// adder adds up the claims of many goroutines, as Java's LongAdder does: in stripes, so that two goroutines seldom wait for one
// lock. It is emptied stripe by stripe.
type adder struct {
	stripes  []stripe
	cellRows int // rows of a full cell: one cell of each stripe makes a flush
	pending  atomic.Int64
	turn     int // stripe that the next take begins with; only take uses it
	pool     sync.Pool
}

// newAdder makes an adder with a stripe a core, rounded up to a power of two.
func newAdder(flushSize int) *adder {
	n := 1 << bits.Len(uint(runtime.GOMAXPROCS(0)-1))
	return &adder{stripes: make([]stripe, n), cellRows: max(1, flushSize/n)}
}

// part are claims, by their places in a batch, that went into one cell.
type part struct {
	cell   *cell
	claims []int
}

// claimsIn is how many claims are in the parts.
func claimsIn(parts []part) (n int) {
	for _, p := range parts {
		n += len(p.claims)
	}
	return n
}

// add puts claims, by their places in events, into one of the stripes. It returns the cells to wait for, none after close, and how many
// claims are pending.
func (a *adder) add(events []models.RawEvent, claims []int, now func() time.Time) (parts []part, pending int64) {
	s := &a.stripes[rand.Uint32()&uint32(len(a.stripes)-1)] //nolint:gosec // spreads load, guards nothing
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, 0
	}
	n := int64(len(claims))
	for len(claims) > 0 {
		if s.open == nil {
			s.open = a.newCell(now())
		}
		c := s.open
		fits := min(len(claims), a.cellRows-len(c.rows))
		for _, i := range claims[:fits] {
			c.add(&events[i])
		}
		parts = append(parts, part{c, claims[:fits]})
		claims = claims[fits:]
		if len(c.rows) == a.cellRows {
			s.full = append(s.full, c)
			s.open = nil
		}
	}
	return parts, a.pending.Add(n)
}

func (a *adder) newCell(now time.Time) *cell {
	rows, _ := a.pool.Get().(*[]row)
	if rows == nil {
		made := make([]row, 0, a.cellRows)
		rows = &made
	}
	return &cell{rows: *rows, sums: make(map[string]*tally), since: now, done: make(chan struct{})}
}

// take empties the stripes, oldest cells first, up to limit rows.
func (a *adder) take(limit int) []*cell {
	var taken []*cell
	rows := 0
	progress := true
	for progress && rows < limit {
		progress = false
		for i := range a.stripes {
			if c := a.stripes[(a.turn+i)%len(a.stripes)].pop(limit - rows); c != nil {
				taken = append(taken, c)
				rows += len(c.rows)
				progress = true
			}
		}
	}
	a.turn++
	a.pending.Add(-int64(rows))
	return taken
}

// pop removes the oldest cell of the stripe, unless it has more rows than fit.
func (s *stripe) pop(free int) *cell {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open
	if len(s.full) > 0 {
		c = s.full[0]
	}
	if c == nil || len(c.rows) > free {
		return nil
	}
	if len(s.full) > 0 {
		s.full[0] = nil
		s.full = s.full[1:]
	} else {
		s.open = nil
	}
	return c
}

// release answers the callers that wait for the cell, and reuses its memory.
func (a *adder) release(c *cell, err error) {
	rows := c.rows
	c.rows = nil
	c.err = err
	close(c.done)
	clear(rows)
	rows = rows[:0]
	a.pool.Put(&rows)
}

// close refuses further claims; pending ones can still be taken.
func (a *adder) close() {
	for i := range a.stripes {
		s := &a.stripes[i]
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
}

// oldest is when the oldest pending claim came; zero when there is none.
func (a *adder) oldest() time.Time {
	var oldest time.Time
	for i := range a.stripes {
		oldest = earlier(oldest, a.stripes[i].oldest())
	}
	return oldest
}

func (s *stripe) oldest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.full) > 0:
		return s.full[0].since
	case s.open != nil:
		return s.open.since
	}
	return time.Time{}
}

// earlier is the earlier of two times; a zero one does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
