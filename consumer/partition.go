package consumer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/attribute"

	"dibs/consumer/redisbatch"
	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/models/event"
)

type read struct {
	entries []redisbatch.Entry
	events  []event.Raw   // of readable entries
	indexes []int         // of the events among the entries
	bad     map[int]error // why an entry is unreadable, by its index
}

type readKey struct{}

// errNoUUID reports an entry that watermill-redisstream can't read either.
var errNoUUID = errors.New("consumer: watermill's uuid key is missing")

type partition struct {
	*Consumer

	label  string
	stop   context.Context // ends when reading stops; ends waits between attempts
	retry  middleware.Retry
	poison message.HandlerMiddleware
}

func (c *Consumer) partition(stop context.Context, n int) (*partition, error) {
	retry := middleware.Retry{
		MaxRetries: math.MaxInt32, InitialInterval: c.cfg.Backoff.Initial, MaxInterval: c.cfg.Backoff.Max,
		Multiplier: 2, RandomizationFactor: backoff.DefaultRandomizationFactor,
	}
	p := &partition{Consumer: c, label: strconv.Itoa(n), stop: stop, retry: retry}
	var err error
	p.poison, err = middleware.PoisonQueueWithFilter(&parking{p}, lua.ParkedKey(n, c.cfg.Group), isPermanent)
	return p, err
}

// handle handles a message's events concurrently and acknowledges each
// by itself. Failed ones are retried until they succeed or are parked.
// What a stop leaves is delivered again.
func (p *partition) handle(msg *message.Message) error {
	ctx := msg.Context()
	r, _ := ctx.Value(readKey{}).(*read)
	var running sync.WaitGroup
	left := make([]error, len(r.entries))
	settle := func(i int, e *event.Raw, err error) {
		if err != nil {
			err = p.recover(ctx, r.entries[i], e, err)
		}
		left[i] = err
		if err == nil {
			redisbatch.Ack(ctx, i)
		}
	}
	for i, err := range r.bad {
		running.Go(func() { settle(i, nil, err) })
	}
	for i := range r.events {
		e := &r.events[i]
		running.Go(func() { settle(r.indexes[i], e, p.service.once(ctx, e)) })
	}
	running.Wait()
	return errors.Join(left...)
}

// recover retries a failed event until it succeeds or is parked.
// Without an event it parks the entry. It fails if a stop comes first.
func (p *partition) recover(ctx context.Context, entry redisbatch.Entry, e *event.Raw, failure error) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.stop, cancel)()
	tries := 0
	attempt := p.poison(func(one *message.Message) ([]*message.Message, error) {
		if tries > 0 {
			failure = p.service.once(ctx, e)
		}
		if e != nil {
			tries++
		}
		if p.cfg.Attempts > 0 && tries >= p.cfg.Attempts && failure != nil && !isPermanent(failure) {
			failure = Permanent(fmt.Errorf("gave up after %d attempts: %w", tries, failure))
		}
		one.Metadata.Set(triesKey, strconv.Itoa(tries))
		return nil, failure
	})
	_, err := p.retry.Middleware(func(one *message.Message) ([]*message.Message, error) {
		_, err := attempt(one)
		if err != nil {
			p.retried.WithLabelValues(p.cfg.Group, p.label).Inc()
			p.warnings.Do(func() {
				p.cfg.Logger.Warn("handling an event failed, it will be tried again", "entry", entry.ID, "error", err)
			})
		}
		return nil, err
	})(message.NewMessageWithContext(waiting, entry.ID, redisbatch.Marshal([]redisbatch.Entry{entry})))
	return err
}

// decode decodes the events of a message, once for all that follow.
func (c *Consumer) decode(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		entries, err := redisbatch.Unmarshal(msg.Payload)
		if err != nil {
			return nil, err
		}
		r := &read{entries: entries, events: make([]event.Raw, 0, len(entries)), bad: map[int]error{}}
		for i := range entries {
			if entries[i].Field(redisstream.UUIDHeaderKey) == "" {
				r.bad[i] = Permanent(errNoUUID)
				continue
			}
			payload := []byte(entries[i].Field("payload"))
			decoded, err := event.Decode(payload)
			if err != nil {
				r.bad[i] = Permanent(err)
				continue
			}
			e := event.Raw{Event: decoded, Payload: payload}
			if c.cfg.Tracer != nil {
				e.TraceParent = tracing.ParentIn(entries[i].Field("metadata"))
			}
			r.events = append(r.events, e)
			r.indexes = append(r.indexes, i)
		}
		msg.SetContext(context.WithValue(msg.Context(), readKey{}, r))
		return h(msg)
	}
}

func (c *Consumer) trace(h message.HandlerFunc) message.HandlerFunc {
	return traced(c.cfg.Tracer, c.cfg.Group, h, func(msg *message.Message) []event.Raw {
		r, _ := msg.Context().Value(readKey{}).(*read)
		return r.events
	})
}

func traced(
	tracer *tracing.Tracer, group string, h message.HandlerFunc, eventsOf func(*message.Message) []event.Raw,
) message.HandlerFunc {
	if tracer == nil {
		return h
	}
	return func(msg *message.Message) ([]*message.Message, error) {
		spans := receive(msg.Context(), tracer, group, eventsOf(msg))
		produced, err := h(msg)
		for _, span := range spans {
			span.Done(err)
		}
		return produced, err
	}
}

// receive starts a span for each traced event.
// Later spans of the event are its children.
func receive(ctx context.Context, tracer *tracing.Tracer, group string, events []event.Raw) (spans []*tracing.Span) {
	for i := range events {
		e := &events[i]
		_, span := tracer.Received(ctx, group+" "+string(e.Type), e.TraceParent,
			attribute.String("messaging.system", "redis"),
			attribute.String("messaging.destination.name", message.SubscribeTopicFromCtx(ctx)),
			attribute.String("messaging.consumer.group.name", group), attribute.String("messaging.message.id", e.ID),
			attribute.String("dibs.campaign_id", e.CampaignID), attribute.Int64("dibs.seq", e.Seq))
		if span != nil {
			spans = append(spans, span)
			e.TraceParent = span.Parent()
		}
	}
	return spans
}
