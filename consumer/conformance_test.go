package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer"
	"dibs/internal/testenv"
)

// restartRedis is the command of this binary that restarts the Redis at an address, for the suite wants a program.
const restartRedis = "restart-redis"

func restart(addr string) int {
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	_ = rdb.Do(context.Background(), "debug", "restart").Err() // the connection breaks: that is the point
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for range 200 {
		<-again.C
		if rdb.Ping(context.Background()).Err() == nil {
			return 0
		}
	}
	return 1
}

// suite makes what watermill's conformance suite asks for.
type suite struct {
	server *testenv.RedisServer
	window int
}

func (s suite) pubSub(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	cfg := redis.Options{Addr: s.server.Addr(), MaxRetries: -1, PoolSize: 64}
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: redis.NewClient(&cfg)}, nil)
	require.NoError(t, err) // its Close closes its client
	rdb := redis.NewClient(&cfg)
	t.Cleanup(func() { _ = rdb.Close() })
	subscriber, err := consumer.NewSubscriber(consumer.SubscriberConfig{
		Client: rdb, Group: group, Consumer: watermill.NewShortUUID(), Logger: quiet(), Registerer: prometheus.NewRegistry(), Window: s.window,
		BlockTime: 20 * time.Millisecond, MinIdle: 2 * time.Second, ReclaimEvery: 100 * time.Millisecond,
		CloseTimeout: 200 * time.Millisecond,
		NackBackoff:  consumer.Backoff{Initial: time.Millisecond, Max: 100 * time.Millisecond},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
	return publisher, subscriber
}

// ownGroup gives each Pub/Sub a group of its own: each subscriber sees the whole stream.
func (s suite) ownGroup(t *testing.T) (message.Publisher, message.Subscriber) {
	return s.pubSub(t, watermill.NewShortUUID())
}

// oneGroup gives all Pub/Subs of a test the same group: subscribers share the stream, and what one leaves behind when it
// closes must reach the next.
func (s suite) oneGroup(t *testing.T) (message.Publisher, message.Subscriber) {
	return s.pubSub(t, t.Name())
}

func conformance(t *testing.T, s suite, features tests.Features, pubSub tests.PubSubConstructor) {
	features.ConsumerGroups = true
	features.Persistent = true
	features.ForceShort = !testenv.Soak()
	tests.TestPubSub(t, features, pubSub, s.pubSub)
}

func TestConformance_EachSubscriberInItsOwnGroupSeesAll(t *testing.T) {
	t.Parallel()
	s := suite{server: testenv.Redis(t)}
	conformance(t, s, tests.Features{NewSubscriberReceivesOldMessages: true}, s.ownGroup)
}

func TestConformance_SubscribersOfOneGroupShare(t *testing.T) {
	t.Parallel()
	s := suite{server: testenv.Redis(t)}
	conformance(t, s, tests.Features{}, s.oneGroup)
}

// With a window of one message the order is kept even across redelivery, and nothing comes before the ack.
func TestConformance_WindowOfOneKeepsOrder(t *testing.T) {
	t.Parallel()
	s := suite{server: testenv.Redis(t), window: 1}
	conformance(t, s, tests.Features{GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true}, s.ownGroup)
}
