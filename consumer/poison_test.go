package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer"
)

// poisoned are the entries of the poison stream.
func (f *fixture) poisoned() []redis.XMessage {
	f.t.Helper()
	entries, err := f.rdb.XRange(context.Background(), f.stream+":poison", "-", "+").Result()
	require.NoError(f.t, err)
	return entries
}

func TestSubscriber_UnreadableEntryGoesToThePoisonStreamAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		f.publish(0, 1)
		id, err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: f.stream, Values: []any{"junk", "a\x00b", "payload", "{"}}).Result()
		require.NoError(t, err)
		_, err = rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: f.stream, Values: []any{
			"_watermill_message_uuid", "bad", "metadata", "not msgpack", "payload", "{}"}}).Result()
		require.NoError(t, err)
		f.publish(1, 2)
		require.Equal(t, names(0, 3), take(t, f.subscribe(f.config("a")), 3))
		f.eventuallyNonePending()
		entries := f.poisoned()
		require.Len(t, entries, 2)
		if entries[0].Values[consumer.PoisonIDField] != id { // each is moved by itself
			entries[0], entries[1] = entries[1], entries[0]
		}
		require.Equal(t, map[string]any{
			consumer.PoisonIDField:     id,
			consumer.PoisonGroupField:  "readers",
			consumer.PoisonReasonField: "_watermill_message_uuid key is missing as part of the message",
			consumer.PoisonTriesField:  "0",
			consumer.PoisonAtField:     entries[0].Values[consumer.PoisonAtField],
			"junk":                     "a\x00b",
			"payload":                  "{",
		}, entries[0].Values)
		require.Equal(t, "not msgpack", entries[1].Values["metadata"])
	})
}

// The poison stream holds a string: no entry can be added. Nothing is acked, and the rest goes on.
func TestSubscriber_UnreadableEntryWaitsForThePoisonStream(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		require.NoError(t, rdb.Set(t.Context(), f.stream+":poison", "x", 0).Err())
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: f.stream, Values: []any{"junk", "1"}}).Err())
		messages := f.subscribe(f.config("a"))
		f.publish(0, 5)
		take(t, messages, 5)
		require.Eventually(t, func() bool { return f.pending() == 1 }, patience, 5*time.Millisecond)
		require.Never(t, func() bool { return f.pending() != 1 }, 100*time.Millisecond, 5*time.Millisecond)
		require.NoError(t, rdb.Del(t.Context(), f.stream+":poison").Err())
		require.Eventually(t, func() bool { return len(f.poisoned()) > 0 }, patience, 5*time.Millisecond)
		f.eventuallyNonePending()
	})
}

func TestHandler_SortsErrors(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		f.publish(0, 3)
		messages := f.subscribe(f.config("a"))
		tries := map[string]int{}
		handle := consumer.Handler(quiet(), func(msg *message.Message) error {
			tries[msg.UUID]++
			switch {
			case msg.UUID == "1":
				return consumer.Permanent(errors.New(strings.Repeat("no such account ", 100)))
			case msg.UUID == "2" && tries["2"] < 3:
				return errors.New("try later")
			}
			return nil
		})
		for range 5 {
			msg := next(t, messages)
			require.NoError(t, handle(msg))
			msg.Ack() // as the Router does; after a nack it has no effect
		}
		require.Equal(t, map[string]int{"0": 1, "1": 1, "2": 3}, tries)
		f.eventuallyNonePending()
		entries := f.poisoned()
		require.Len(t, entries, 1)
		require.Equal(t, "1", entries[0].Values["payload"])
		require.Len(t, entries[0].Values[consumer.PoisonReasonField], 1000)
	})
}
