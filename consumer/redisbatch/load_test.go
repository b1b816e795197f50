package redisbatch_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
	"dibs/internal/testenv"
)

type tally struct {
	mu   sync.Mutex
	acks map[string]int
}

func newTally() *tally { return &tally{acks: map[string]int{}} }

func (c *tally) ack(msg *message.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acks[nameOf(msg)]++
	msg.Ack()
}

func (c *tally) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acks)
}

// work acks most messages in their own goroutines after a moment, as
// handlers of a Router do, and nacks some.
func (c *tally) work(messages <-chan *message.Message) {
	var handlers sync.WaitGroup
	for msg := range messages {
		handlers.Go(func() {
			<-time.After(rand.N(5 * time.Millisecond))
			if rand.N(50) == 0 {
				msg.Nack()
				return
			}
			c.ack(msg)
		})
	}
	handlers.Wait()
}

func (c *tally) start(t *testing.T, subscriptions ...<-chan *message.Message) {
	var workers sync.WaitGroup
	for _, messages := range subscriptions {
		workers.Go(func() { c.work(messages) })
	}
	t.Cleanup(workers.Wait)
}

func (c *tally) eventuallySeen(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.seen() == n }, 3*patience, 10*time.Millisecond, "seen fewer than %d", n)
}

func TestSubscriber_LosesNothingOnABadLine(t *testing.T) {
	t.Parallel()
	server := testenv.SharedRedis(t)
	proxy := testenv.Proxy(t, server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Listen, MaxRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	f, count := newFixture(t, server.Client()), newTally()
	cfg := f.config("a")
	cfg.Client = rdb
	s := f.subscriber(cfg)
	messages, err := s.Subscribe(t.Context(), f.stream)
	require.NoError(t, err)
	count.start(t, messages)
	f.publish(0, 5000)
	for range 15 {
		proxy.Stop()
		<-time.After(rand.N(20 * time.Millisecond))
		require.NoError(t, proxy.Start())
		f.publish(5000, 1) // one name all the time
		<-time.After(rand.N(60 * time.Millisecond))
	}
	count.eventuallySeen(t, 5001)
	f.eventuallyNonePending()
	require.NoError(t, s.Close())
}

func victim(addr, stream string) {
	s, err := redisbatch.New(redisbatch.Config{
		Client: redis.NewClient(&redis.Options{Addr: addr}), Group: "readers", Name: "victim", Logger: quiet(),
		Registerer: prometheus.NewRegistry(), MinIdle: 400 * time.Millisecond, ReadCount: 1,
	})
	if err != nil {
		panic(err)
	}
	messages, err := s.Subscribe(context.Background(), stream)
	if err != nil {
		panic(err)
	}
	for msg := range messages {
		fmt.Println(nameOf(msg))
	}
	os.Exit(1)
}

func TestSubscriber_TakesOverFromAKilledProcess(t *testing.T) {
	t.Parallel()
	server := testenv.SharedRedis(t)
	f := newFixture(t, server.Client())
	f.publish(0, 500)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "DIBS_TEST_VICTIM_ADDR="+server.Addr(), "DIBS_TEST_VICTIM_STREAM="+f.stream)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for range 500 {
		require.True(t, lines.Scan(), "the victim ended")
	}
	require.EqualValues(t, 500, f.pending())

	cfg := f.config("b")
	messages := f.subscribe(cfg)
	none(t, messages, 3*cfg.MinIdle) // live consumers keep their entries
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	start := time.Now()
	require.ElementsMatch(t, names(0, 500), take(t, messages, 500))
	require.Less(t, time.Since(start), cfg.MinIdle+2*time.Second)
	f.eventuallyNonePending()
}

func TestSubscriber_OnACluster(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: testenv.RedisCluster(t, 3), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	for range 6 { // streams in several slots
		f := newFixture(t, rdb)
		f.publish(0, 100)
		f.abandon("dead", 50)
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: f.stream, Values: []any{"junk", "1"}}).Err())
		messages := f.subscribe(f.config("a"))
		held := next(t, messages)
		require.Len(t, take(t, messages, 100), 100, "the unreadable one is among them")
		held.Ack()
		f.eventuallyNonePending()
	}
	require.Equal(t, 1, slow(t, rdb))
}
