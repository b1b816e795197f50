package consumer

import (
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/time/rate"

	"dibs/models"
)

// warningEvery is the least time between two log lines about refused messages: when a handler's database goes away, a whole window
// is refused at once.
const warningEvery = time.Second

// toSink gives the entries of a message to a Sink, which settles each. The message itself is always acked then.
func toSink(log *slog.Logger, sink Sink) message.NoPublishHandlerFunc {
	warnings := rate.Sometimes{First: 1, Interval: warningEvery}
	return func(msg *message.Message) error {
		d := deliveryOf(msg.Context())
		batch := make([]models.RawEvent, len(d.entries))
		for i, e := range d.entries {
			batch[i] = e.event
		}
		sink.Submit(msg.Context(), batch, func(i int, err error) {
			if err != nil {
				warnings.Do(func() { warnRefused(log, d.entries[i], err) })
			}
			d.settle(i, err)
		})
		return nil
	}
}

func warnRefused(log *slog.Logger, e *entry, err error) {
	log.Warn("handling a message failed, it will be delivered again", "entry", e.id, "error", err)
}

// handler turns what handle returns into what watermill's Router needs. nil acks the message. An error made by Permanent moves its
// entry to the poison stream. After any other error the message is delivered again after a back-off.
func handler(log *slog.Logger, handle message.NoPublishHandlerFunc) message.NoPublishHandlerFunc {
	warnings := rate.Sometimes{First: 1, Interval: warningEvery}
	return func(msg *message.Message) error {
		err := handle(msg)
		d := deliveryOf(msg.Context())
		e := d.entries[0]
		if errors.Is(err, ErrPermanent) {
			err = d.poison(msg.Context(), e, err)
		}
		if err != nil {
			warnings.Do(func() { warnRefused(log, e, err) })
			msg.Nack() // here and not by the error: the Router would log every one
		}
		return nil
	}
}
