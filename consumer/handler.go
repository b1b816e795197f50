package consumer

import (
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/time/rate"
)

// warningEvery is the least time between two log lines about refused messages: when a handler's database goes away, a whole window
// is refused at once.
const warningEvery = time.Second

// handler turns what handle returns into what watermill's Router needs. nil acks the message. An error made by Permanent moves its
// entry to the poison stream. After any other error the message is delivered again after a back-off.
func handler(log *slog.Logger, handle message.NoPublishHandlerFunc) message.NoPublishHandlerFunc {
	warnings := rate.Sometimes{First: 1, Interval: warningEvery}
	return func(msg *message.Message) error {
		err := handle(msg)
		e := entryOf(msg.Context())
		if errors.Is(err, ErrPermanent) {
			err = e.sub.poison(msg.Context(), e, err)
		}
		if err != nil {
			warnings.Do(func() {
				log.Warn("handling a message failed, it will be delivered again", "entry", e.id, "error", err)
			})
			msg.Nack() // here and not by the error: the Router would log every one
		}
		return nil
	}
}
