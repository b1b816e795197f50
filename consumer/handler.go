package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/time/rate"

	"dibs/internal/tracing"
	"dibs/models"
)

// warningEvery is the least time between two log lines about refused messages: when a handler's database goes away, a whole window
// is refused at once.
const warningEvery = time.Second

// toSink gives the entries of a message to a Sink, which settles each. The message itself is always acked then.
func toSink(cfg *subscriberConfig, sink Sink) message.NoPublishHandlerFunc {
	warnings := rate.Sometimes{First: 1, Interval: warningEvery}
	return func(msg *message.Message) error {
		d := deliveryOf(msg.Context())
		batch := make([]models.RawEvent, len(d.entries))
		for i, e := range d.entries {
			batch[i] = e.event
		}
		spans := traced(d, batch)
		sink.Submit(msg.Context(), batch, func(i int, err error) {
			if err != nil {
				warnings.Do(func() { warnRefused(cfg.log, d.entries[i], err) })
			}
			spans[i].Done(err)
			d.settle(i, err)
		})
		return nil
	}
}

// traced starts the spans of the events of a batch that are traced, by their place; what is done for these events is linked to them.
func traced(d *delivery, batch []models.RawEvent) (spans map[int]*tracing.Span) {
	for i := range batch {
		if _, span := d.received(d, &batch[i]); span != nil {
			if spans == nil {
				spans = make(map[int]*tracing.Span)
			}
			spans[i], batch[i].TraceParent = span, span.Parent()
		}
	}
	return spans
}

// received starts the span of an event from its read to its verdict, if it is traced.
func (s *subscription) received(ctx context.Context, e *models.RawEvent) (context.Context, *tracing.Span) {
	if s.cfg.tracer == nil || e.TraceParent == "" {
		return ctx, nil
	}
	return s.cfg.tracer.Received(ctx, s.cfg.group+" "+string(e.Type), e.TraceParent,
		attribute.String("messaging.system", "redis"), attribute.String("messaging.destination.name", s.stream),
		attribute.String("messaging.consumer.group.name", s.cfg.group), attribute.String("messaging.message.id", e.ID),
		attribute.String("dibs.campaign_id", e.CampaignID), attribute.Int64("dibs.seq", e.Seq))
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
