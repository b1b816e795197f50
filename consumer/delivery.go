package consumer

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"

	"dibs/internal/sleep"
	"dibs/models"
)

type entryKey struct{}

// entry is an entry of the stream from its read to its acknowledgement. It is the parent of the contexts of its messages, so that a
// message leads back to its entry.
type entry struct {
	context.Context // of the subscription: cancelled when the drain is over
	sub             *subscription
	id              string
	fields          map[string]any // nil: the entry is gone from the stream
	event           *models.Event  // nil without subscriberConfig.decode
	attempts        int            // deliveries so far; changes only while no handler has the message
	retry           *backoff.ExponentialBackOff

	refreshed time.Time // when Redis last reset its idle time; guarded by window.mu
	stale     bool      // Redis does not have it as pending any more; guarded by window.mu
}

// Value finds the entry itself under its key.
func (e *entry) Value(key any) any {
	if key == (entryKey{}) {
		return e
	}
	return e.Context.Value(key)
}

// entryOf returns the entry of a message of this package's subscriber, by the message's context.
func entryOf(ctx context.Context) *entry {
	e, _ := ctx.Value(entryKey{}).(*entry)
	return e
}

// delivery is one message made of an entry, and the message's context. The context is of its own type because a thousand children of
// the subscription's context in each flush cost more than the rest of a delivery.
type delivery struct {
	*entry

	msg   *message.Message
	ended chan struct{}
}

// end ends the message's context. It is called once for each delivery, when it has its verdict or will get none.
func (d *delivery) end() { close(d.ended) }

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

var (
	_ context.Context = (*entry)(nil)
	_ context.Context = (*delivery)(nil)
)

// send waits until the Router takes the message, and then puts the delivery into sent. It sends nothing once the subscription stops.
func (s *subscription) send(e *entry, msg *message.Message, sent chan<- *delivery) {
	if s.stop.Err() != nil {
		return
	}
	e.attempts++
	d := &delivery{entry: e, msg: msg, ended: make(chan struct{})}
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
			acked = append(acked, d.entry)
			continue
		case verdictNack:
			d.end()
			s.waiting.Go(func() { s.redeliver(d) })
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

// redeliver sends a message that was nacked once more, each time after a longer wait, and waits for its verdict.
func (s *subscription) redeliver(d *delivery) {
	s.counters.nacked.Inc()
	if d.retry == nil {
		d.retry = s.cfg.nackBackoff.start()
	}
	if sleep.For(s.stop, d.retry.NextBackOff()) != nil {
		return
	}
	sent := make(chan *delivery, 1)
	s.send(d.entry, d.msg.Copy(), sent)
	close(sent)
	s.awaitVerdicts(sent)
}
