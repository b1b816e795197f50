package redisbatch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
	"dibs/internal/testkit/testenv"
)

// suite constructs what watermill's conformance suite needs.
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
	subscriber, err := redisbatch.New(redisbatch.Config{
		Client: rdb, Group: group, Name: watermill.NewShortUUID(), Logger: quiet(), Registerer: prometheus.NewRegistry(), Window: s.window,
		BlockTime: 20 * time.Millisecond, MinIdle: 2 * time.Second, ReclaimEvery: 100 * time.Millisecond,
		CloseTimeout: 200 * time.Millisecond,
		NackDelay:    time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
	return publisher, &unpacking{Subscriber: subscriber}
}

// unpacking makes messages of the entries of batches, which the suite
// expects. It only uses the payload.
type unpacking struct {
	*redisbatch.Subscriber

	running sync.WaitGroup
}

func (u *unpacking) Close() error {
	defer u.running.Wait()
	return u.Subscriber.Close()
}

func (u *unpacking) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	batches, err := u.Subscriber.Subscribe(ctx, topic)
	out := make(chan *message.Message)
	if err == nil {
		u.running.Go(func() {
			defer close(out)
			var waiting sync.WaitGroup
			defer waiting.Wait()
			for batch := range batches {
				unpack(batch, out, &waiting)
			}
		})
	}
	return out, err
}

// unpack delivers the entries of a batch in order, acks each with its
// message, and nacks the rest.
func unpack(batch *message.Message, out chan<- *message.Message, waiting *sync.WaitGroup) {
	entries, err := redisbatch.Unmarshal(batch.Payload)
	if err != nil {
		panic(err)
	}
	var verdicts sync.WaitGroup
	for i, e := range entries {
		msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(map[string]any{
			redisstream.UUIDHeaderKey: e.Field(redisstream.UUIDHeaderKey), "metadata": e.Field("metadata"), "payload": e.Field("payload"),
		})
		if err != nil {
			panic(err)
		}
		ctx, end := context.WithCancel(batch.Context())
		msg.SetContext(ctx)
		select {
		case out <- msg:
		case <-ctx.Done():
		}
		verdicts.Go(func() {
			defer end()
			select {
			case <-msg.Acked():
				redisbatch.Ack(batch.Context(), i)
			case <-msg.Nacked():
			case <-ctx.Done():
			}
		})
	}
	waiting.Go(func() {
		verdicts.Wait()
		batch.Nack() // a batch whose entries are all acked has nothing left
	})
}

// ownGroup gives each Pub/Sub its own group:
// each subscriber gets the whole stream.
func (s suite) ownGroup(t *testing.T) (message.Publisher, message.Subscriber) {
	return s.pubSub(t, watermill.NewShortUUID())
}

// oneGroup gives all Pub/Subs of a test the same group. Subscribers
// share the stream, and the next one must get what a closed one left.
func (s suite) oneGroup(t *testing.T) (message.Publisher, message.Subscriber) {
	return s.pubSub(t, t.Name())
}

func conformance(t *testing.T, s suite, features tests.Features, pubSub tests.PubSubConstructor) {
	features.ConsumerGroups = true
	features.Persistent = true
	features.ForceShort = !testenv.Soak()
	tests.TestPubSub(t, features, pubSub, s.pubSub)
}

func newSuite(t *testing.T, window int) suite {
	return suite{server: testenv.Redis(t), window: window}
}

func TestConformance_EachSubscriberInItsOwnGroupSeesAll(t *testing.T) {
	t.Parallel()
	s := newSuite(t, 0)
	conformance(t, s, tests.Features{NewSubscriberReceivesOldMessages: true}, s.ownGroup)
}

func TestConformance_SubscribersOfOneGroupShare(t *testing.T) {
	t.Parallel()
	s := newSuite(t, 0)
	conformance(t, s, tests.Features{}, s.oneGroup)
}

func TestConformance_WindowOfOneKeepsOrder(t *testing.T) {
	t.Parallel()
	s := newSuite(t, 1)
	conformance(t, s, tests.Features{GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true}, s.ownGroup)
}
