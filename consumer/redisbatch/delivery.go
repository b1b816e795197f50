package redisbatch

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// delivery is a message and its entries. The message's context refers to it.
type delivery struct {
	*subscription

	msg     *message.Message
	entries []*entry
}

type deliveryKey struct{}

// Ack acknowledges one entry of a message before the message is acked. i is
// the index in the payload, ctx the message's context. It is idempotent and
// safe for concurrent use. It ignores messages of other subscribers.
func Ack(ctx context.Context, i int) {
	if d, is := ctx.Value(deliveryKey{}).(*delivery); is {
		d.window.ack(d.entries[i])
	}
}

// messageOf returns the message of entries.
func messageOf(entries []*entry) *message.Message {
	list := make([]Entry, len(entries))
	fields := make([]string, 0, 6*len(entries))
	for i, e := range entries {
		before := len(fields)
		for name, value := range e.Values {
			text, _ := value.(string)
			fields = append(fields, name, text)
		}
		list[i] = Entry{ID: e.ID, Fields: fields[before:]}
	}
	return message.NewMessage(entries[0].ID, Marshal(list))
}

// send delivers entries in one message, unless the subscription stops
// before a handler takes it.
func (s *subscription) send(entries ...*entry) {
	if s.stop.Err() != nil {
		return
	}
	d := &delivery{subscription: s, msg: messageOf(entries), entries: entries}
	ctx, end := context.WithCancel(context.WithValue(s.ctx, deliveryKey{}, d))
	d.msg.SetContext(ctx)
	select {
	case s.out <- d.msg:
		s.waiting.Go(func() {
			nacked := d.awaitVerdict()
			end()
			if len(nacked) > 0 && sleep(s.stop, s.cfg.NackDelay) {
				for _, e := range nacked {
					s.send(e)
				}
			}
		})
	case <-s.stop.Done():
		end()
	}
}

// awaitVerdict waits for the ack or nack, and returns the entries to deliver
// again. Without either until the drain ends, they stay pending in Redis.
func (d *delivery) awaitVerdict() (nacked []*entry) {
	select {
	case <-d.msg.Acked():
	case <-d.msg.Nacked():
	case <-d.ctx.Done():
	}
	select {
	case <-d.msg.Acked():
		d.window.ack(d.entries...)
	case <-d.msg.Nacked():
		nacked = d.window.unacked(d.entries)
		d.counters.nacked.Add(float64(len(nacked)))
	default:
	}
	return nacked
}
