package redisbatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
)

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
		require.Equal(t, "16", nameOf(next(t, messages)), "one acked, one more comes, though 15 are stuck")
		none(t, messages, 50*time.Millisecond)
	})
}

func TestSubscriber_NackedMessageComesAgainAfterADelayWhileOthersGoOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		cfg := f.config("a")
		cfg.NackDelay = 100 * time.Millisecond
		messages := f.subscribe(cfg)
		f.publish(0, 1)
		var waits []time.Duration
		for range 3 {
			msg := next(t, messages)
			require.Equal(t, "0", nameOf(msg))
			nacked := time.Now()
			require.True(t, msg.Nack())
			f.publish(1, 5)
			require.Equal(t, names(1, 5), take(t, messages, 5), "others go on in the meantime")
			again := next(t, messages)
			require.Equal(t, "0", nameOf(again))
			waits = append(waits, time.Since(nacked))
			again.Nack()
		}
		require.Equal(t, []string{"0"}, take(t, messages, 1))
		require.Greater(t, slices.Min(waits), 90*time.Millisecond, "waits %v", waits)
		f.eventuallyNonePending()
	})
}

func TestConfig_NamesTheFieldThatItRefuses(t *testing.T) {
	t.Parallel()
	named := redisbatch.Config{Client: embedded(t), Group: "g", Name: "c"}
	for field, spoil := range map[string]func(c *redisbatch.Config){
		"Client": func(c *redisbatch.Config) { c.Client = nil }, "Group": func(c *redisbatch.Config) { c.Group = "" },
		"Window": func(c *redisbatch.Config) { c.Window = -1 }, "MinIdle": func(c *redisbatch.Config) { c.MinIdle = 1 },
		"Logger": func(*redisbatch.Config) {},
	} {
		bad := named
		spoil(&bad)
		_, err := redisbatch.New(bad)
		require.ErrorIs(t, err, redisbatch.ErrConfig)
		require.ErrorContains(t, err, field)
	}
}
