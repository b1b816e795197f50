package redisbatch_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
	"dibs/internal/testenv"
	"dibs/models"
)

// committer is a sink whose commits take a while and cover all that was waiting when they started.
type committer struct {
	took time.Duration // 0: done at once
	mu   sync.Mutex
	next chan struct{} // closed when the next commit is done; nil: no one waits
}

func (c *committer) commit(ctx context.Context) {
	for pause := time.NewTicker(max(c.took, time.Millisecond)); ; {
		c.mu.Lock()
		batch := c.next
		c.next = nil
		c.mu.Unlock()
		select { // the commit
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		if batch != nil {
			close(batch)
		}
	}
}

func (c *committer) submit() {
	if c.took == 0 {
		return
	}
	c.mu.Lock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	batch := c.next
	c.mu.Unlock()
	<-batch
}

const benchPayload = `{"v":1,"type":"claim.accepted","id":"0199c0de-7a3e-7bbb-8c1d-%012d","campaign_id":"spring-sale",` +
	`"user_id":"user-%07d","quantity":1,"key":"q83vEjRWeJCrze8SNFZ4kA","epoch":1,"seq":%d,"at":"2026-11-21T04:42:26.123Z"}`

func (f *fixture) publishClaims(n int) {
	for start := 0; start < n; start += 1000 {
		_, err := f.rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error {
			for i := start; i < min(n, start+1000); i++ {
				p.XAdd(context.Background(), &redis.XAddArgs{Stream: f.stream, Values: []any{
					"_watermill_message_uuid", fmt.Sprintf("0199c0de-7a3e-7bbb-8c1d-%012d", i), "metadata", "",
					"payload", fmt.Sprintf(benchPayload, i, i, i+1),
				}})
			}
			return nil
		})
		require.NoError(f.t, err)
	}
}

// BenchmarkSubscriber brings messages from a full stream through the Router to handlers that decode the event and return
// when a commit of 20 ms, shared by all that wait, is done; beside it the same without any wait. msg/s is the figure.
func BenchmarkSubscriber(b *testing.B) {
	for _, took := range []time.Duration{20 * time.Millisecond, 0} {
		b.Run(fmt.Sprintf("dibs/commit=%s", took), func(b *testing.B) { benchmark(b, took, windowed) })
		b.Run(fmt.Sprintf("stock/commit=%s", took), func(b *testing.B) { benchmark(b, took, stock) })
	}
}

func windowed(f *fixture) message.Subscriber {
	s, err := redisbatch.New(redisbatch.Config{
		Client: f.rdb, Group: "readers", Name: "a", Logger: quiet(), Registerer: f.reg,
	})
	require.NoError(f.t, err)
	return s
}

func stock(f *fixture) message.Subscriber {
	s, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: f.rdb, ConsumerGroup: "readers", Consumer: "a", DisableIndefiniteInitialBlock: true,
	}, watermill.NopLogger{})
	require.NoError(f.t, err)
	return s
}

func benchmark(b *testing.B, took time.Duration, subscriber func(*fixture) message.Subscriber) {
	f := newFixture(b, redis.NewClient(&redis.Options{Addr: testenv.SharedRedis(b).Addr(), MaxRetries: -1}))
	defer func() { _ = f.rdb.Close() }()
	f.publishClaims(b.N)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sink := &committer{took: took}
	go sink.commit(ctx)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(b, err)
	var left atomic.Int64
	left.Store(int64(b.N))
	router.AddConsumerHandler("bench", f.stream, subscriber(f), func(msg *message.Message) error {
		if _, err := models.DecodeEvent(msg.Payload); err != nil {
			return err
		}
		sink.submit()
		if left.Add(-1) == 0 {
			go cancel()
		}
		return nil
	})
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, router.Run(ctx))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
