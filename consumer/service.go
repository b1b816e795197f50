package consumer

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"dibs/models/event"
)

// HandleFunc handles one event. payload is its JSON, with fields that
// event.Event lacks. It returns
//
//   - nil: the event is handled or irrelevant. It is acknowledged.
//   - an error of [Permanent]: the event is parked with the reason, and
//     acknowledged.
//   - any other error, or a panic: the event is retried; later events do not
//     wait.
//
// Delivery is at least once: deduplicate on e.ID, and return nil for
// unknown types. Up to Config.Window calls of a partition run at once,
// so a handler may wait for others and commit them together. ctx ends
// with the attempt's timeout, or when a stop takes too long; that of a
// replay with the stop.
type HandleFunc func(ctx context.Context, e event.Event, payload []byte) error

type service struct {
	handle  HandleFunc
	timeout time.Duration // of an attempt
}

func (s *service) once(ctx context.Context, e *event.Raw) error {
	msg := &message.Message{UUID: e.ID, Payload: e.Payload} // its ack is not used
	msg.SetContext(ctx)
	_, err := middleware.Recoverer(middleware.Timeout(s.timeout)(func(msg *message.Message) ([]*message.Message, error) {
		return nil, s.handle(msg.Context(), e.Event, e.Payload)
	}))(msg)
	return err
}
