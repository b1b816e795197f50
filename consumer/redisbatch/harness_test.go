package redisbatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dibs/consumer/redisbatch"
	"dibs/internal/testkit/testenv"
)

func TestMain(m *testing.M) {
	const watermill = "github.com/ThreeDotsLabs/watermill/"
	testenv.Main(m, // what watermill's conformance suite starts and does not end
		goleak.IgnoreAnyFunction(watermill+"internal/subscriber.(*multiplier).Subscribe.func2"),
		goleak.IgnoreAnyFunction(watermill+"internal/subscriber.(*multiplier).Subscribe.func3"))
}

const patience = time.Minute

func onBoth(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, testenv.SharedRedis(t).Client())
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, embedded(t))
	})
}

func embedded(t testing.TB) redis.UniversalClient {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

type fixture struct {
	t      testing.TB
	rdb    redis.UniversalClient
	stream string
	reg    *prometheus.Registry
}

func newFixture(t testing.TB, rdb redis.UniversalClient) *fixture {
	return &fixture{
		t: t, rdb: rdb, stream: "dibs:{" + testenv.UniqueID(t, "t") + "}:claims", reg: prometheus.NewRegistry(),
	}
}

// config is fast enough for tests; change it before use.
func (f *fixture) config(name string) redisbatch.Config {
	return redisbatch.Config{
		Client: f.rdb, Group: "readers", Name: name, Logger: quiet(), Registerer: prometheus.NewRegistry(),
		BlockTime: 20 * time.Millisecond, MinIdle: 400 * time.Millisecond, ReclaimEvery: 50 * time.Millisecond,
		NackDelay:    10 * time.Millisecond,
		CloseTimeout: 300 * time.Millisecond,
		ReadCount:    1, // an entry a message
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (f *fixture) subscriber(cfg redisbatch.Config) *redisbatch.Subscriber {
	s, err := redisbatch.New(cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, s.Close()) })
	return s
}

func (f *fixture) subscribe(cfg redisbatch.Config) <-chan *message.Message {
	messages, err := f.subscriber(cfg).Subscribe(f.t.Context(), f.stream)
	require.NoError(f.t, err)
	return messages
}

// publish adds n entries named first, first+1, …, as Dibs' script
// writes them, and returns their ids.
func (f *fixture) publish(first, n int) []string {
	f.t.Helper()
	ids := make([]string, 0, n)
	for start := 0; start < n; start += 1000 {
		cmds, err := f.rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error {
			for i := start; i < min(n, start+1000); i++ {
				name := fmt.Sprint(first + i)
				p.XAdd(context.Background(), &redis.XAddArgs{Stream: f.stream, Values: []any{
					"_watermill_message_uuid", name, "metadata", "", "payload", name,
				}})
			}
			return nil
		})
		require.NoError(f.t, err)
		for _, cmd := range cmds {
			ids = append(ids, cmd.(*redis.StringCmd).Val())
		}
	}
	return ids
}

func next(t testing.TB, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, open := <-messages:
		require.True(t, open, "the channel is closed")
		return msg
	case <-time.After(patience):
		require.FailNow(t, "no message came")
		return nil
	}
}

func take(t testing.TB, messages <-chan *message.Message, n int) []string {
	t.Helper()
	names := make([]string, 0, n)
	for len(names) < n {
		msg := next(t, messages)
		require.True(t, msg.Ack())
		names = append(names, namesOf(msg)...)
	}
	return names
}

// nameOf returns the name of a message's first entry.
func nameOf(msg *message.Message) string { return namesOf(msg)[0] }

func namesOf(msg *message.Message) (names []string) {
	entries, err := redisbatch.Unmarshal(msg.Payload)
	if err != nil {
		panic(err)
	}
	for i := range entries {
		names = append(names, entries[i].Field("_watermill_message_uuid"))
	}
	return names
}

func none(t testing.TB, messages <-chan *message.Message, span time.Duration) {
	t.Helper()
	select {
	case msg, open := <-messages:
		if open {
			require.FailNow(t, "a message came that should not", nameOf(msg))
		}
	case <-time.After(span):
	}
}

func names(first, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(first + i)
	}
	return list
}

func (f *fixture) pending() int64 {
	p, err := f.rdb.XPending(context.Background(), f.stream, "readers").Result()
	if err != nil {
		return -1
	}
	return p.Count
}

func (f *fixture) eventuallyNonePending() {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.pending() == 0 }, patience, 5*time.Millisecond)
}

func metric(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	var sum float64
	for _, family := range families {
		if family.GetName() != "redisbatch_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}
