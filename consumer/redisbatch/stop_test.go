package redisbatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
)

func TestSubscriber_CloseWaitsForHandlersThenFlushesAcks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		cfg := f.config("a")
		cfg.CloseTimeout = patience
		cfg.AckDelay = time.Hour // only the flush of the stop can ack
		s := f.subscriber(cfg)
		messages, err := s.Subscribe(t.Context(), f.stream)
		require.NoError(t, err)
		f.publish(0, 2)
		first, second := next(t, messages), next(t, messages)
		first.Ack()
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		select {
		case err := <-closed:
			require.FailNow(t, "closed with a message in flight", "%v", err)
		case <-time.After(100 * time.Millisecond):
			require.NoError(t, second.Context().Err(), "a handler in flight may finish")
		}
		second.Ack()
		require.NoError(t, <-closed)
		require.Zero(t, f.pending())
		_, open := <-messages
		require.False(t, open)
		require.NoError(t, s.Close(), "twice is fine")
		require.NoError(t, rdb.Ping(t.Context()).Err(), "the client stays open")
		_, err = s.Subscribe(t.Context(), f.stream)
		require.ErrorIs(t, err, redisbatch.ErrClosed)
	})
}

func TestSubscriber_StopGivesUpAfterCloseTimeoutAndAnotherTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		f.publish(0, 50)
		cfg := f.config("a")
		cfg.ReadCount = 50
		cfg.MinIdle = time.Hour // only released entries can be taken
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := f.subscriber(cfg).Subscribe(ctx, f.stream)
		require.NoError(t, err)
		next(t, messages).Nack() // so each comes again by itself
		stuck := next(t, messages)
		cancel()
		late := time.After(patience)
		for open := true; open; {
			select {
			case _, open = <-messages: // one offered as the subscription ended may still arrive
			case <-late:
				require.FailNow(t, "the channel stays open")
			}
		}
		require.Error(t, stuck.Context().Err(), "the context of a message ends with the drain")
		stuck.Ack()
		require.EqualValues(t, 50, f.pending(), "an ack after the end is not sent")

		cfg.Name = "b"
		require.Equal(t, names(0, 50), take(t, f.subscribe(cfg), 50))
		f.eventuallyNonePending()
	})
}
