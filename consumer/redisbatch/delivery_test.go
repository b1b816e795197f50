package redisbatch_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
	"dibs/internal/testenv"
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

func TestSubscriber_AFullWindowStopsItsReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.SharedRedis(t).Client())
	f.publish(0, 3)
	cfg := f.config("a")
	var last atomic.Int64
	cfg.Window, cfg.OnRead = 1, func(stream string) {
		require.Equal(t, f.stream, stream)
		last.Store(time.Now().UnixNano())
	}
	messages := f.subscribe(cfg)
	stuck := func() bool { return time.Since(time.Unix(0, last.Load())) > time.Second }
	first := next(t, messages)
	require.Eventually(t, stuck, patience, 10*time.Millisecond)
	first.Ack()
	next(t, messages).Ack()
	next(t, messages).Ack()
	require.Eventually(t, func() bool { return !stuck() }, patience, 10*time.Millisecond)
	require.Never(t, stuck, 1500*time.Millisecond, 10*time.Millisecond, "an idle reader turns")
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

func TestSubscriber_RefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	good := redisbatch.Config{Client: rdb, Group: "g", Name: "c", Logger: quiet(), Registerer: prometheus.NewRegistry()}
	for field, spoil := range map[string]func(*redisbatch.Config){
		"Client":       func(c *redisbatch.Config) { c.Client = nil },
		"Group":        func(c *redisbatch.Config) { c.Group = "" },
		"Name":         func(c *redisbatch.Config) { c.Name = "" },
		"Logger":       func(c *redisbatch.Config) { c.Logger = nil },
		"Window":       func(c *redisbatch.Config) { c.Window = -1 },
		"ReadCount":    func(c *redisbatch.Config) { c.ReadCount = -1 },
		"MinIdle":      func(c *redisbatch.Config) { c.MinIdle = 1 },
		"NackDelay":    func(c *redisbatch.Config) { c.NackDelay = -1 },
		"CloseTimeout": func(c *redisbatch.Config) { c.CloseTimeout = -1 },
	} {
		cfg := good
		spoil(&cfg)
		_, err := redisbatch.New(cfg)
		require.ErrorIs(t, err, redisbatch.ErrConfig)
		require.ErrorContains(t, err, field)
	}
	_, err := redisbatch.New(good)
	require.NoError(t, err)
}
