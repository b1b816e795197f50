package consumer

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"dibs/models"
)

// HandleFunc handles one event. payload is the event's JSON, for fields that models.Event lacks. It returns
//
//   - nil: the event was handled, or does not concern this service. It is acknowledged, and comes again only after a crash.
//   - an error made by [Permanent]: no retry will cure it. The message is parked with the reason, and acknowledged.
//   - any other error: the event is handled again after a back-off; the events behind it do not wait. A panic is such an error.
//
// Delivery is at least once: deduplicate on e.ID. For event types that it does not know it returns nil. Up to Config.Window calls
// a partition run at once, so that a handler may gather them into batches and return when its batch is committed. ctx ends with the
// attempt's timeout, or when a stop has lasted too long.
type HandleFunc func(ctx context.Context, e models.Event, payload []byte) error

// service is a handler with a bound of time.
type service struct {
	handle  HandleFunc
	timeout time.Duration // of an attempt
}

// once hands an event to the handler.
func (s *service) once(ctx context.Context, e *models.RawEvent) error {
	msg := &message.Message{UUID: e.ID, Payload: e.Payload} // its ack concerns no one
	msg.SetContext(ctx)
	_, err := middleware.Recoverer(middleware.Timeout(s.timeout)(func(msg *message.Message) ([]*message.Message, error) {
		return nil, s.handle(msg.Context(), e.Event, e.Payload)
	}))(msg)
	return err
}
