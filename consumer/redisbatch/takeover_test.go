package redisbatch_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
	"dibs/internal/testenv"
)

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
	for range 3 { // streams in several slots
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
}
