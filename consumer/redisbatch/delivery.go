package redisbatch

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// delivery is one message and the entries that it is made of. The message's context leads back to it.
type delivery struct {
	*subscription

	msg     *message.Message
	entries []*entry
}

type deliveryKey struct{}

// Ack acknowledges one entry of a message, by its place in the payload and the message's context, before the message has its verdict. It
// may be called again, from any goroutine. It does nothing for a message of another subscriber.
func Ack(ctx context.Context, i int) {
	if d, is := ctx.Value(deliveryKey{}).(*delivery); is {
		d.window.ack(d.entries[i])
	}
}

// UnreadableKey is in the metadata of a message whose entry the Unmarshaller refused, with the reason. The payload of such a message is the
// entry as Marshal writes it.
const UnreadableKey = "redisbatch_unreadable"

// messageOf makes the message of entries: of one of them, unless cfg.Batches.
func (s *subscription) messageOf(entries []*entry) *message.Message {
	var err error
	if !s.cfg.Batches {
		var msg *message.Message
		msg, err = s.cfg.Unmarshaller.Unmarshal(entries[0].Values)
		if err == nil {
			return msg
		}
	}
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
	msg := message.NewMessage(entries[0].ID, Marshal(list))
	if err != nil {
		msg.Metadata.Set(UnreadableKey, err.Error())
	}
	return msg
}

// send delivers entries in one message, and waits until it is taken. It sends nothing once the subscription stops.
func (s *subscription) send(entries ...*entry) {
	if s.stop.Err() != nil {
		return
	}
	d := &delivery{subscription: s, msg: s.messageOf(entries), entries: entries}
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

// awaitVerdict waits until the message is acked or nacked, and returns the entries to deliver again. Without a verdict when the drain is
// over its entries stay pending in Redis.
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
