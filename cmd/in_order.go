package cmd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"dibs/consumer"
	"dibs/consumer/redisbatch"
	"dibs/lua"
	"dibs/models"
)

// readInOrder reads all claim streams for a group and submits what it reads: of each stream in its order, one batch after the other. submit
// need not wait until it has settled what it is given.
func (s *stack) readInOrder(
	ctx context.Context, group string, submit func(ctx context.Context, batch []models.RawEvent, settle func(i int, err error)),
) error {
	cfg := s.reading(group)
	cfg.Name = group
	cfg.Batches = true
	cfg.MetricsPrefix = "dibs_consumer"
	if !s.cfg.ReadAhead {
		cfg.IsReady = consumer.IsApplied(s.rdb)
	}
	cfg.OnRead = func(stream string) { s.pulse.Beat("the reader of "+stream, liveWithin) }
	subscriber, err := redisbatch.New(cfg)
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	var reading sync.WaitGroup
	for p := range s.cfg.Partitions {
		messages, err := subscriber.Subscribe(ctx, lua.StreamKey(p))
		if err != nil {
			return fmt.Errorf("cmd: %w", err)
		}
		reading.Go(func() {
			for msg := range messages {
				s.submitInOrder(msg, submit)
			}
		})
	}
	reading.Wait()
	return subscriber.Close()
}

// submitInOrder submits the events of a message. An entry that holds none is passed over: the group syncer parks it.
func (s *stack) submitInOrder(msg *message.Message, submit func(context.Context, []models.RawEvent, func(int, error))) {
	entries, err := redisbatch.Unmarshal(msg.Payload)
	if err != nil {
		s.log.Error("a message can't be read", "error", err)
		msg.Nack()
		return
	}
	var batch []models.RawEvent
	var places []int
	for i := range entries {
		payload := []byte(entries[i].Field("payload"))
		event, err := models.DecodeEvent(payload)
		if err != nil {
			s.log.Error("an entry holds no event and is delivered to no endpoint", "entry", entries[i].ID, "error", err)
			redisbatch.Ack(msg.Context(), i)
			continue
		}
		batch = append(batch, models.RawEvent{Event: event, Payload: payload})
		places = append(places, i)
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
			redisbatch.Ack(msg.Context(), places[i])
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
