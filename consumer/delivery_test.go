package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer"
	"dibs/internal/pulse"
	"dibs/internal/testenv"
)

func TestSubscriber_DeliversInStreamOrderAndAcks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		f.publish(0, 1500)
		messages := f.subscribe(f.config("a"))
		require.Equal(t, names(0, 1500), take(t, messages, 1500))
		f.publish(1500, 300)
		require.Equal(t, names(1500, 300), take(t, messages, 300))
		f.eventuallyNonePending()
	})
}

func TestSubscriber_NeverAcksBeforeTheHandler(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		f.publish(0, 10)
		messages := f.subscribe(f.config("a"))
		held := next(t, messages)
		take(t, messages, 9)
		require.Eventually(t, func() bool { return f.pending() == 1 }, patience, time.Millisecond)
		require.Never(t, func() bool { return f.pending() != 1 }, 100*time.Millisecond, 5*time.Millisecond)
		held.Ack()
		f.eventuallyNonePending()
	})
}

func TestSubscriber_ReadsNoMoreThanItsWindow(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		f.publish(0, 100)
		cfg := f.config("a")
		cfg.Window = 16
		messages := f.subscribe(cfg)
		first := next(t, messages)
		for range 15 {
			next(t, messages)
		}
		none(t, messages, 100*time.Millisecond)
		require.EqualValues(t, 16, f.pending())
		first.Ack()
		require.Equal(t, "16", next(t, messages).UUID, "one acked, one more comes, though 15 are stuck")
		none(t, messages, 50*time.Millisecond)
	})
}

// A reader whose window stays full does nothing: it is stuck, and well again when something is acknowledged.
func TestSubscriber_AFullWindowStopsItsPulse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.SharedRedis(t).Client())
	f.publish(0, 3)
	cfg := f.config("a")
	cfg.Window, cfg.Pulse = 1, &pulse.Pulse{}
	messages := f.subscribe(cfg)
	stuck := func() bool { return cfg.Pulse.Stuck(-29*time.Second) != nil } // a second without a turn
	first := next(t, messages)
	require.Eventually(t, stuck, patience, 10*time.Millisecond)
	require.ErrorContains(t, cfg.Pulse.Stuck(-29*time.Second), f.stream)
	first.Ack()
	next(t, messages).Ack()
	next(t, messages).Ack()
	require.Eventually(t, func() bool { return !stuck() }, patience, 10*time.Millisecond)
	require.Never(t, stuck, 1500*time.Millisecond, 10*time.Millisecond, "an idle reader turns")
}

func TestSubscriber_NackedMessageComesAgainLaterAndLaterWhileOthersGoOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		cfg := f.config("a")
		cfg.NackBackoff = consumer.Backoff{Initial: 40 * time.Millisecond, Max: time.Second}
		messages := f.subscribe(cfg)
		f.publish(0, 1)
		var waits []time.Duration
		for range 3 {
			msg := next(t, messages)
			require.Equal(t, "0", msg.UUID)
			nacked := time.Now()
			require.True(t, msg.Nack())
			f.publish(1, 5)
			require.Equal(t, names(1, 5), take(t, messages, 5), "others go on meanwhile")
			again := next(t, messages)
			require.Equal(t, "0", again.UUID)
			waits = append(waits, time.Since(nacked))
			again.Nack()
		}
		require.Equal(t, []string{"0"}, take(t, messages, 1))
		require.Greater(t, waits[2], waits[0], "waits %v", waits)
		require.Greater(t, waits[2], 200*time.Millisecond, "the fifth wait is 640 ms, give or take half")
		f.eventuallyNonePending()
	})
}

func TestSubscriber_MessageContextEndsWithItsVerdictAndKnowsItsEntry(t *testing.T) {
	t.Parallel()
	type key struct{}
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		ids := f.publish(0, 2)
		messages, err := f.subscriber(f.config("a")).Subscribe(context.WithValue(t.Context(), key{}, "kept"), f.stream)
		require.NoError(t, err)
		acked, nacked := next(t, messages), next(t, messages)
		for i, msg := range []context.Context{acked.Context(), nacked.Context()} {
			require.NoError(t, msg.Err())
			require.Equal(t, ids[i], consumer.EntryID(msg))
			require.Equal(t, "kept", msg.Value(key{}))
		}
		acked.Ack()
		nacked.Nack()
		<-acked.Context().Done()
		<-nacked.Context().Done()
		require.Equal(t, []string{"1"}, take(t, messages, 1))
		require.Empty(t, consumer.EntryID(t.Context()))
	})
}

func TestSubscriber_RefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	good := consumer.SubscriberConfig{Client: rdb, Group: "g", Consumer: "c", Logger: quiet(), Registerer: prometheus.NewRegistry()}
	for field, spoil := range map[string]func(*consumer.SubscriberConfig){
		"Client":       func(c *consumer.SubscriberConfig) { c.Client = nil },
		"Group":        func(c *consumer.SubscriberConfig) { c.Group = "" },
		"Name":         func(c *consumer.SubscriberConfig) { c.Consumer = "" },
		"Logger":       func(c *consumer.SubscriberConfig) { c.Logger = nil },
		"Window":       func(c *consumer.SubscriberConfig) { c.Window = -1 },
		"Backoff.Max":  func(c *consumer.SubscriberConfig) { c.NackBackoff.Max = time.Millisecond },
		"CloseTimeout": func(c *consumer.SubscriberConfig) { c.CloseTimeout = -1 },
	} {
		cfg := good
		spoil(&cfg)
		_, err := consumer.NewSubscriber(cfg)
		require.ErrorIs(t, err, consumer.ErrConfig)
		require.ErrorContains(t, err, " "+field+" ")
	}
	_, err := consumer.NewSubscriber(good)
	require.NoError(t, err)
}
