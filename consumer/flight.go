package consumer

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
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

// delivery is one message made of a flight. Its context ends when the message is acked or nacked.
type delivery struct {
	msg  *message.Message
	done context.CancelFunc
}

func (f *flight) deliver(msg *message.Message) delivery {
	ctx, cancel := context.WithCancel(f)
	msg.SetContext(ctx)
	return delivery{msg: msg, done: cancel}
}

// carry waits for the verdict on a message that was handed out: acked goes to the acks, nacked is handed out again after
// a while, and what has no verdict when the drain is over is let go.
func (s *subscription) carry(f *flight, d delivery) {
	defer s.carriers.Done()
	var pause *backoff.ExponentialBackOff
	for {
		acked := s.verdict(d.msg)
		d.done()
		if acked {
			s.acks.add(f)
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		s.meters.nacked.Inc()
		if pause == nil {
			pause = s.cfg.NackBackoff.start()
		}
		if !s.pause(pause.NextBackOff()) {
			return
		}
		d = f.deliver(d.msg.Copy())
		if !s.handOut(d) {
			return
		}
	}
}

// verdict waits until the message is acked (true), or nacked or the drain is over (false).
func (s *subscription) verdict(msg *message.Message) bool {
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
		return false
	case <-s.ctx.Done():
	}
	select {
	case <-msg.Acked():
		return true
	default:
		return false
	}
}

// handOut waits until the subscriber's user takes the message; false when the subscription stops first.
func (s *subscription) handOut(d delivery) bool {
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

var _ context.Context = (*flight)(nil)
