package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models/event"
	"dibs/models/stored"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"gorm.io/gorm"
)

// Group is the webhooks' consumer group.
const Group = "webhooks"

// ErrReplaced is the cause of a context that ended because
// another process took over delivery.
var ErrReplaced = errors.New("webhooks: another process delivers")

// DefaultGiveUpAfter is how long an event is retried before it is parked.
const DefaultGiveUpAfter = 24 * time.Hour

const (
	backoffFirst = 500 * time.Millisecond // doubled after each failure
	maxBackoff   = 5 * time.Minute
	// before a lane checks again for rows being inserted.
	commitPause  = 10 * time.Millisecond
	storePause   = time.Second     // before MySQL is retried
	finishWithin = 5 * time.Second // of a stop, for requests in progress
	laneMemory   = 256             // events of a lane in memory; more wait in the table
	nameMemory   = 2048            // the same of an endpoint
	// of a lane, read at once; up to so many events may repeat after a crash.
	pageRows = 200
)

// Config configures a Dispatcher.
type Config struct {
	DB        *gorm.DB
	Endpoints func() Endpoints // the current ones
	Private   bool             // allows endpoints with private addresses
	// Proxy returns the proxy for a remote endpoint, or nil. The proxy then
	// checks addresses, not this process. A nil Proxy means none.
	Proxy func(endpoint *url.URL) (*url.URL, error)
	// GiveUpAfter is how long an event is retried; 0 is DefaultGiveUpAfter.
	GiveUpAfter time.Duration
	Logger      *slog.Logger
	Registerer  prometheus.Registerer

	initialBackoff, maxBackoff time.Duration // the constants, except in tests
}

// Dispatcher delivers events. Only one process at a time may run
// one: two would deliver a campaign's events out of order.
type Dispatcher struct {
	cfg     Config
	store   store
	sender  *sender
	metrics *metrics

	ctx       context.Context //nolint:containedctx // of Run, for lanes that begin later
	finishing context.Context //nolint:containedctx // lasts longer than ctx, for what is under way

	mu       sync.Mutex
	lanes    map[laneKey]*lane
	inMemory map[string]int                 // events in memory, by endpoint
	slots    map[string]*semaphore.Weighted // requests in progress, by endpoint
	lastNo   int64
	spilling []spill // in the order of insertion
	running  sync.WaitGroup

	spilled chan struct{} // holds a token when spilling is not empty
}

// item is an event pending delivery to one endpoint.
type item struct {
	stored.WebhookEvent

	done func(error) // nil if read from the table
}

// spill is a lane's events to be written to the table.
type spill struct {
	lane  *lane
	items []*item
}

// New makes a Dispatcher, idle until Run.
func New(cfg Config) *Dispatcher {
	if cfg.GiveUpAfter == 0 {
		cfg.GiveUpAfter = DefaultGiveUpAfter
	}
	if cfg.initialBackoff == 0 {
		cfg.initialBackoff = backoffFirst
		cfg.maxBackoff = maxBackoff
	}
	d := &Dispatcher{cfg: cfg, store: store{cfg.DB}, sender: newSender(cfg.Private, cfg.Proxy), spilled: make(chan struct{}, 1)}
	d.metrics = newMetrics(cfg.Registerer, d)
	return d
}

// Run delivers submitted events until consume returns. It settles with an
// error those neither delivered nor in the table. Requests in progress have
// five seconds to end, or none if ctx ended by ErrReplaced. It may be called
// again after it has returned, and begins anew when MySQL was restored.
func (d *Dispatcher) Run(ctx context.Context, consume func(context.Context) error) error {
	for {
		err := d.run(ctx, consume)
		if !errors.Is(err, errRestored) {
			return err
		}
	}
}

func (d *Dispatcher) run(ctx context.Context, consume func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	finishing, finish := context.WithCancel(context.WithoutCancel(ctx))
	defer finish()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrReplaced) {
			finish()
			return
		}
		time.AfterFunc(finishWithin, finish)
	})()
	d.begin(ctx, finishing)
	if d.recover(ctx) != nil { // stopped
		return nil
	}
	d.running.Go(func() { d.write(ctx) })
	err := consume(ctx)
	cancel()
	d.running.Wait()
	return err
}

// begin drops what an earlier run left in memory.
func (d *Dispatcher) begin(ctx, finishing context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx = ctx
	d.finishing = finishing
	d.lanes = make(map[laneKey]*lane)
	d.inMemory = make(map[string]int)
	d.slots = make(map[string]*semaphore.Weighted)
	d.spilling = nil
}

// recover starts the lanes with events in the table. It waits for MySQL.
func (d *Dispatcher) recover(ctx context.Context) error {
	var found []left
	err := sqlstore.RetryForever(ctx, d.warnStore(ctx), func() (err error) {
		found, err = d.store.lanes(ctx)
		return err
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, was := range found {
		d.lastNo = max(d.lastNo, was.lastNo)
		l := d.lane(was.key, 0)
		l.spilled = true
		l.waiting = was.waiting
		l.gap = was.gap
		l.start()
	}
	return nil
}

func (d *Dispatcher) warnStore(ctx context.Context) sqlstore.Notice {
	return func(err error, _ sqlstore.Failure, wait time.Duration) {
		d.cfg.Logger.WarnContext(ctx, "the table of events that wait for endpoints can't be used, will try again",
			slog.Any("error", err), slog.Duration("wait", wait))
	}
}

// lane finds or makes a lane, of rows after a number. The caller holds mu.
func (d *Dispatcher) lane(key laneKey, after int64) *lane {
	l := d.lanes[key]
	if l == nil {
		if d.slots[key.endpoint] == nil {
			d.slots[key.endpoint] = semaphore.NewWeighted(sendsMax)
		}
		l = &lane{d: d, key: key, slots: d.slots[key.endpoint], after: after, removed: after}
		d.lanes[key] = l
	}
	return l
}

// Submit takes events to deliver and returns at once. It calls
// settle for each, with nil once every subscribed endpoint has
// the event or the table holds it. Events of one claim stream
// must be submitted in order, in consecutive calls.
func (d *Dispatcher) Submit(_ context.Context, batch []event.Raw, settle func(i int, err error)) {
	endpoints := d.cfg.Endpoints()
	for i := range batch {
		event := &batch[i]
		var wanted []string
		for name, e := range endpoints {
			if e.wants(&event.Event) {
				wanted = append(wanted, name)
			}
		}
		if len(wanted) == 0 {
			settle(i, nil)
			continue
		}
		done := all(len(wanted), func(err error) { settle(i, err) })
		for _, name := range wanted {
			if !d.enqueue(laneKey{name, event.CampaignID}, event, done) {
				done(d.ctx.Err())
			}
		}
	}
}

func (d *Dispatcher) perDelivery(endpoint string) int {
	e := d.cfg.Endpoints()[endpoint]
	if e == nil {
		return 1
	}
	return max(1, e.Batch)
}

// all returns a function that, at its nth call, calls then with
// any of the errors.
func all(n int, then func(error)) func(error) {
	var left atomic.Int32
	var failed atomic.Pointer[error]
	left.Store(int32(n))
	return func(err error) {
		if err != nil {
			failed.Store(&err)
		}
		if left.Add(-1) > 0 {
			return
		}
		if e := failed.Load(); e != nil {
			then(*e)
			return
		}
		then(nil)
	}
}

// enqueue adds an event to a lane. It returns false while the
// Dispatcher stops.
func (d *Dispatcher) enqueue(key laneKey, event *event.Raw, done func(error)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return false
	}
	d.lastNo = max(d.lastNo+1, time.Now().UnixMicro())
	it := &item{done: done, WebhookEvent: stored.WebhookEvent{
		Endpoint: key.endpoint, CampaignID: key.campaignID, No: d.lastNo, EventID: event.ID, Type: event.Type, At: event.At.Time,
		Payload: event.Payload, CreatedAt: sqlstore.Now(),
	}}
	l := d.lane(key, d.lastNo-1)
	l.waiting++
	switch {
	case l.spilled:
		d.spill(l, []*item{it})
	case len(l.queue) >= laneMemory || d.inMemory[key.endpoint] >= nameMemory:
		d.spill(l, append(l.underway(), append(d.unqueue(l, max(1, l.sending)), it)...))
		l.needed = l.spills
	default:
		d.queue(l, []*item{it})
	}
	l.start()
	return true
}

// queue adds events to a lane's memory. The caller holds mu.
func (d *Dispatcher) queue(l *lane, items []*item) {
	l.queue = append(l.queue, items...)
	d.inMemory[l.key.endpoint] += len(items)
}

// unqueue removes all but the first keep events from a lane's
// memory. The caller holds mu.
func (d *Dispatcher) unqueue(l *lane, keep int) []*item {
	keep = min(keep, len(l.queue))
	items := l.queue[keep:]
	l.queue = l.queue[:keep:keep]
	d.inMemory[l.key.endpoint] -= len(items)
	return items
}

// spill queues a lane's events for the table, and diverts later
// ones there. The caller holds mu.
func (d *Dispatcher) spill(l *lane, items []*item) {
	l.spilled = true
	l.spills++
	d.spilling = append(d.spilling, spill{l, items})
	select {
	case d.spilled <- struct{}{}:
	default:
	}
}

// write inserts spilled events into the table, in order, until ctx ends.
// While MySQL is unreachable, it and all later events wait.
func (d *Dispatcher) write(ctx context.Context) {
	for {
		select {
		case <-d.spilled:
		case <-ctx.Done():
			d.mu.Lock()
			left := d.spilling
			d.mu.Unlock()
			settle(left, ctx.Err())
			return
		}
		d.mu.Lock()
		batch := d.spilling
		d.spilling = nil
		d.mu.Unlock()
		var rows []stored.WebhookEvent
		for _, s := range batch {
			for _, it := range s.items {
				rows = append(rows, it.WebhookEvent)
			}
		}
		err := sqlstore.RetryForever(ctx, d.warnStore(ctx), func() error { return d.store.insert(ctx, rows) })
		settle(batch, err)
		d.mu.Lock()
		for _, s := range batch {
			s.lane.commits++
		}
		d.mu.Unlock()
	}
}

func settle(batch []spill, err error) {
	for _, s := range batch {
		for _, it := range s.items {
			it.done(err)
		}
	}
}

// errRemoved means that the file no longer has the endpoint.
var errRemoved = errors.New("webhooks: no such endpoint any more")

// send delivers events once the endpoint's request limit allows it: the first,
// or the first ones if the endpoint takes batches. It returns how many. That
// is up to the endpoints file as it is now, not when the events were read.
func (d *Dispatcher) send(l *lane, events []stored.WebhookEvent) (n int, err error) {
	endpoint := d.cfg.Endpoints()[l.key.endpoint]
	if endpoint == nil {
		return 0, errRemoved
	}
	events = events[:min(len(events), max(1, endpoint.Batch))]
	id, body, err := endpoint.messageOf(events, l.gap)
	if err != nil {
		return 0, err
	}
	if err := l.slots.Acquire(d.ctx, 1); err != nil {
		return 0, err
	}
	err = d.sender.send(d.finishing, endpoint, id, body)
	l.slots.Release(1)
	for i := range events {
		d.metrics.sent(l.key.endpoint, events[i].At, err)
	}
	return len(events), err
}
