package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"

	"dibs/internal/sleep"
	"dibs/models"
)

// entry is an entry of the stream from its read to its acknowledgement.
type entry struct {
	id       string
	fields   map[string]any  // nil: the entry is gone from the stream
	event    models.RawEvent // empty without subscriberConfig.decode
	attempts int             // deliveries so far; changes only while no handler has the message
	retry    *backoff.ExponentialBackOff

	refreshed time.Time // when Redis last reset its idle time; guarded by window.mu
	stale     bool      // Redis does not have it as pending any more; guarded by window.mu
}

// delivery is one message made of entries, and the message's context, by which the message leads back to its entries. The context is
// of its own type because a thousand children of the subscription's context in each flush cost more than the rest of a delivery.
type delivery struct {
	*subscription

	entries []*entry // nil where the handler has settled an entry by itself, before the message has its verdict
	msg     *message.Message
	ended   chan struct{}
}

type deliveryKey struct{}

// deliveryOf returns the delivery of a message of this package's subscriber, by the message's context.
func deliveryOf(ctx context.Context) *delivery {
	d, _ := ctx.Value(deliveryKey{}).(*delivery)
	return d
}

// entryOf returns the entry of a message that is made of one.
func entryOf(ctx context.Context) *entry { return deliveryOf(ctx).entries[0] }

// settle is the handler's verdict on one entry of a message that is made of many.
func (d *delivery) settle(i int, err error) {
	e := d.entries[i]
	d.entries[i] = nil
	if err == nil {
		d.acks.add(e)
	} else if d.stop.Err() == nil { // else it stays pending in Redis
		d.waiting.Go(func() { d.redeliver(e) })
	}
}

// unsettled are the entries that share the verdict on their message.
func (d *delivery) unsettled() []*entry {
	return slices.DeleteFunc(d.entries, func(e *entry) bool { return e == nil })
}

// end ends the message's context. It is called once for each delivery, when it has its verdict or will get none.
func (d *delivery) end() { close(d.ended) }

// Deadline is none: a handler has as long as it takes.
func (d *delivery) Deadline() (time.Time, bool) { return d.ctx.Deadline() }

// Value finds the delivery itself under its key.
func (d *delivery) Value(key any) any {
	if key == (deliveryKey{}) {
		return d
	}
	return d.ctx.Value(key)
}

// Done is closed when the delivery has ended.
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

var _ context.Context = (*delivery)(nil)

// send waits until the Router takes the message of the entries, and then puts the delivery into sent. It sends nothing once the
// subscription stops.
func (s *subscription) send(msg *message.Message, entries []*entry, sent chan<- *delivery) {
	if s.stop.Err() != nil {
		return
	}
	if msg == nil {
		msg = message.NewMessage(entries[0].id, nil)
	}
	for _, e := range entries {
		e.attempts++
	}
	d := &delivery{subscription: s, entries: entries, msg: msg, ended: make(chan struct{})}
	msg.SetContext(d)
	select {
	case s.out <- msg:
		sent <- d
	case <-s.stop.Done():
		d.end()
	}
}

// A message without a verdict keeps the ones behind it, of the same read, from being looked at for verdictWait, and up to
// verdictWaitMax while no message at all gets its verdict.
const (
	verdictWait    = 5 * time.Millisecond
	verdictWaitMax = 32 * verdictWait
)

// awaitVerdicts waits for the acks and nacks of the messages that come through sent until it is closed. One goroutine does so for a
// whole read, because a window of thousands of goroutines costs the garbage collector more than the work itself. What is acked joins
// the acks, what is nacked is delivered again, and what has no verdict when the drain is over stays pending in Redis.
func (s *subscription) awaitVerdicts(sent <-chan *delivery) {
	wait := verdictWait
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var undecided []*delivery
	for sent != nil || len(undecided) > 0 {
		var acked, nacked <-chan struct{}
		if len(undecided) > 0 {
			acked, nacked = undecided[0].msg.Acked(), undecided[0].msg.Nacked()
		}
		var behind <-chan time.Time
		if len(undecided) > 1 {
			behind = timer.C
		}
		select {
		case d, more := <-sent:
			if more {
				undecided = append(undecided, d)
			} else {
				sent = nil
			}
		case <-acked:
			undecided = s.collect(undecided, false)
		case <-nacked:
			undecided = s.collect(undecided, false)
		case <-behind:
			before := len(undecided)
			if undecided = s.collect(undecided, true); len(undecided) < before {
				wait = verdictWait
			} else {
				wait = min(2*wait, verdictWaitMax)
			}
			timer.Reset(wait)
		case <-s.ctx.Done():
			s.endUndecided(undecided, sent)
			return
		}
	}
}

// endUndecided ends the deliveries that have no verdict when the drain is over.
func (s *subscription) endUndecided(undecided []*delivery, sent <-chan *delivery) {
	if sent != nil {
		for d := range sent { // closed soon: nothing is sent any more
			undecided = append(undecided, d)
		}
	}
	for _, d := range s.collect(undecided, true) {
		d.end()
	}
}

// collect takes the deliveries that have their verdict from the undecided ones: those at the front, or all of them.
func (s *subscription) collect(undecided []*delivery, all bool) []*delivery {
	var acked []*entry
	left := undecided[:0]
	for i, d := range undecided {
		switch verdictOn(d.msg) {
		case verdictAck:
			d.end()
			acked = append(acked, d.unsettled()...)
			continue
		case verdictNack:
			d.end()
			for _, e := range d.unsettled() {
				s.waiting.Go(func() { s.redeliver(e) })
			}
			continue
		case verdictNone:
		}
		if !all {
			left = append(left, undecided[i:]...)
			break
		}
		left = append(left, d)
	}
	s.acks.add(acked...)
	clear(undecided[len(left):])
	return left
}

type verdict int

const (
	verdictNone verdict = iota
	verdictAck
	verdictNack
)

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

// redeliver sends an entry that was refused once more, in a message of its own, each time after a longer wait, and waits for the
// verdict.
func (s *subscription) redeliver(e *entry) {
	s.counters.nacked.Inc()
	if e.retry == nil {
		e.retry = s.cfg.nackBackoff.start()
	}
	if sleep.For(s.stop, e.retry.NextBackOff()) != nil {
		return
	}
	sent := make(chan *delivery, 1)
	if msg, err := s.messageOf(e); err == nil { // it could be read before
		s.send(msg, []*entry{e}, sent)
	}
	close(sent)
	s.awaitVerdicts(sent)
}
