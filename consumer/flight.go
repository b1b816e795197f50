package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

type flightKey struct{}

// flight is one entry on its way from the stream to its ack. It is the parent of the contexts of its messages, so that
// a handler's message leads back to its entry.
type flight struct {
	context.Context // of the subscription: cancelled when the drain is over
	sub             *subscription
	id              string
	fields          map[string]any // nil: the entry is gone from the stream
	decoded         any            // see SubscriberConfig.Decode
	attempts        int            // deliveries so far; changes only while no handler has the message

	touched   time.Time // when Redis last saw the entry move; guarded by window.mu
	forgotten bool      // guarded by window.mu
}

// Value finds the flight itself under its key.
func (f *flight) Value(key any) any {
	if key == (flightKey{}) {
		return f
	}
	return f.Context.Value(key)
}

func flightOf(ctx context.Context) *flight {
	f, _ := ctx.Value(flightKey{}).(*flight)
	return f
}

// EntryID is the stream id of the entry that a message came from, and "" for a message of another subscriber.
// ctx is the message's context.
func EntryID(ctx context.Context) string {
	if f := flightOf(ctx); f != nil {
		return f.id
	}
	return ""
}

// Decoded is what SubscriberConfig.Decode made of a message; nil for a message of another subscriber, or without Decode.
// ctx is the message's context.
func Decoded(ctx context.Context) any {
	if f := flightOf(ctx); f != nil {
		return f.decoded
	}
	return nil
}

// Attempt tells how often this process has delivered a message, this time included: 1 is the first. It is 0 for a message of
// another subscriber. ctx is the message's context.
func Attempt(ctx context.Context) int {
	if f := flightOf(ctx); f != nil {
		return f.attempts
	}
	return 0
}

// delivery is one message made of a flight, and the message's context: of its own make, because a thousand children of the
// subscription's context in each flush cost more than the rest of a delivery. It ends by done.
type delivery struct {
	*flight

	msg   *message.Message
	ended chan struct{}
	once  sync.Once
}

func (f *flight) deliver(msg *message.Message) *delivery {
	f.attempts++
	d := &delivery{flight: f, msg: msg, ended: make(chan struct{})}
	msg.SetContext(d)
	return d
}

// done ends the message's context: the message has its verdict, or will get none. Whoever has the delivery must call it.
func (d *delivery) done() { d.once.Do(func() { close(d.ended) }) }

// Done is closed when the delivery is over.
func (d *delivery) Done() <-chan struct{} { return d.ended }

// Err is nil until then.
func (d *delivery) Err() error {
	select {
	case <-d.ended:
		return context.Canceled
	default:
		return nil
	}
}

// carried is a message that was handed out and the flight it was made of.
type carried struct {
	flight   *flight
	delivery *delivery
}

// A message without a verdict keeps those behind it, of the same read, from being looked at for carryPatience, and up to
// carryPatienceMax while nothing at all gets its verdict.
const (
	carryPatience    = 5 * time.Millisecond
	carryPatienceMax = 32 * carryPatience
)

// carry waits for the verdicts on the messages of one read, which come through handed until it is closed: one goroutine
// for all of them, because a window of thousands of goroutines costs the garbage collector more than the work itself.
// What is acked goes to the acks, what is nacked gets a carrier of its own, and what has no verdict when the drain is
// over is let go.
func (s *subscription) carry(handed <-chan carried) {
	defer s.carriers.Done()
	patience := carryPatience
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var waiting []carried
	for handed != nil || len(waiting) > 0 {
		var acked, nacked <-chan struct{}
		if len(waiting) > 0 {
			acked, nacked = waiting[0].delivery.msg.Acked(), waiting[0].delivery.msg.Nacked()
		}
		select {
		case c, more := <-handed:
			if more {
				waiting = append(waiting, c)
			} else {
				handed = nil
			}
		case <-acked:
			waiting = s.settle(waiting, false)
		case <-nacked:
			waiting = s.settle(waiting, false)
		case <-timer.C:
			before := len(waiting)
			if waiting = s.settle(waiting, true); len(waiting) < before {
				patience = carryPatience
			} else {
				patience = min(2*patience, carryPatienceMax)
			}
			timer.Reset(patience)
		case <-s.ctx.Done():
			s.letGo(waiting, handed)
			return
		}
	}
}

// letGo parts with the messages that have no verdict when the drain is over.
func (s *subscription) letGo(waiting []carried, handed <-chan carried) {
	if handed != nil {
		for c := range handed { // closed soon: nothing is handed out any more
			waiting = append(waiting, c)
		}
	}
	for _, c := range s.settle(waiting, true) {
		c.delivery.done()
	}
}

// settle takes the messages that have their verdict from the waiting ones: those at the front, or all of them.
func (s *subscription) settle(waiting []carried, all bool) []carried {
	var acked []*flight
	kept := waiting[:0]
	for i, c := range waiting {
		switch verdictOn(c.delivery.msg) {
		case verdictAck:
			c.delivery.done()
			acked = append(acked, c.flight)
			continue
		case verdictNack:
			c.delivery.done()
			s.carriers.Add(1)
			go s.carryAgain(c)
			continue
		case verdictNone:
		}
		if !all {
			kept = append(kept, waiting[i:]...)
			break
		}
		kept = append(kept, c)
	}
	s.acks.add(acked...)
	clear(waiting[len(kept):])
	return kept
}

type verdict int

const (
	verdictNone verdict = iota
	verdictAck
	verdictNack
)

// verdictOn tells the verdict on a message as it is now.
func verdictOn(msg *message.Message) verdict {
	select {
	case <-msg.Acked():
		return verdictAck
	default:
	}
	select {
	case <-msg.Nacked():
		return verdictNack
	default:
		return verdictNone
	}
}

// carryAgain hands a message that was nacked out again and again, each time after a longer while, until it is acked or the
// subscription stops.
func (s *subscription) carryAgain(c carried) {
	defer s.carriers.Done()
	pause := s.cfg.NackBackoff.start()
	for {
		s.meters.nacked.Inc()
		if !s.pause(pause.NextBackOff()) {
			return
		}
		c.delivery = c.flight.deliver(c.delivery.msg.Copy())
		if !s.handOut(c.delivery) {
			return
		}
		select {
		case <-c.delivery.msg.Acked():
		case <-c.delivery.msg.Nacked():
		case <-s.ctx.Done():
		}
		v := verdictOn(c.delivery.msg)
		c.delivery.done()
		if v == verdictAck {
			s.acks.add(c.flight)
		}
		if v != verdictNack {
			return
		}
	}
}

// handOut waits until the subscriber's user takes the message; false when the subscription stops first.
func (s *subscription) handOut(d *delivery) bool {
	if s.stop.Err() == nil {
		select {
		case s.out <- d.msg:
			return true
		case <-s.stop.Done():
		}
	}
	d.done()
	return false
}

var (
	_ context.Context = (*flight)(nil)
	_ context.Context = (*delivery)(nil)
)
