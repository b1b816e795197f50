package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"dibs/consumer/redisbatch"
	"dibs/lua"
	"dibs/models/event"
)

// Submit takes a batch of events. It calls
// settle for each, in any order, perhaps later.
type Submit func(ctx context.Context, batch []event.Raw, settle func(i int, err error))

// ReadInOrder reads all claim streams for a group until ctx ends. It
// submits the events of each stream in order, one batch after another.
func ReadInOrder(ctx context.Context, cfg redisbatch.Config, partitions int, submit Submit) error {
	cfg.Name = cfg.Group
	cfg.MetricsPrefix = "dibs_consumer"
	subscriber, err := redisbatch.New(cfg)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	var reading sync.WaitGroup
	for p := range partitions {
		messages, err := subscriber.Subscribe(ctx, lua.StreamKey(p))
		if err != nil {
			return fmt.Errorf("consumer: %w", err)
		}
		reading.Go(func() {
			for msg := range messages {
				submitInOrder(msg, cfg.Logger, submit)
			}
		})
	}
	reading.Wait()
	return subscriber.Close() //nolint:wrapcheck // ours
}

// submitInOrder submits the events of a message.
// Group syncer parks entries without one.
func submitInOrder(msg *message.Message, log *slog.Logger, submit Submit) {
	entries, err := redisbatch.Unmarshal(msg.Payload)
	if err != nil {
		log.Error("a message can't be read", "error", err)
		msg.Nack()
		return
	}
	var batch []event.Raw
	var indexes []int
	for i := range entries {
		payload := []byte(entries[i].Field("payload"))
		decoded, err := event.Decode(payload)
		if err != nil {
			log.Error("an entry holds no event and is delivered to no endpoint", "entry", entries[i].ID, "error", err)
			redisbatch.Ack(msg.Context(), i)
			continue
		}
		batch = append(batch, event.Raw{Event: decoded, Payload: payload})
		indexes = append(indexes, i)
	}
	if len(batch) == 0 {
		msg.Ack()
		return
	}
	var left atomic.Int64
	var failed atomic.Bool
	left.Store(int64(len(batch)))
	submit(msg.Context(), batch, func(i int, err error) {
		if err == nil {
			redisbatch.Ack(msg.Context(), indexes[i])
		} else {
			failed.Store(true)
		}
		switch {
		case left.Add(-1) > 0:
		case failed.Load():
			msg.Nack()
		default:
			msg.Ack()
		}
	})
}
