package consumer

import (
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/time/rate"
)

// complaintEvery is the least time between two log lines about refused messages: when what stands behind a handler goes
// away, a whole window is refused at once.
const complaintEvery = time.Second

// Handler turns the verdict of a handler into what watermill's Router needs. nil acks the message. An error made by
// Permanent moves its entry to the poison stream. Any other error has it delivered again after a back-off.
func Handler(log *slog.Logger, handle message.NoPublishHandlerFunc) message.NoPublishHandlerFunc {
	complaints := rate.Sometimes{First: 1, Interval: complaintEvery}
	return func(msg *message.Message) error {
		err := handle(msg)
		if errors.Is(err, ErrPermanent) {
			err = Poison(msg, err)
		}
		if err != nil {
			complaints.Do(func() {
				log.Warn("message refused, it will come again", "entry", EntryID(msg.Context()), "error", err)
			})
			msg.Nack() // here and not by the error: the Router would log every one
		}
		return nil
	}
}
