package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"dibs/lua"
)

// routerGrace is how much longer the Router waits for a stop than the subscriptions under it.
const routerGrace = 5 * time.Second

// errClosed says that the subscriber was closed.
var errClosed = errors.New("consumer: subscriber is closed")

// subscriber is a watermill message.Subscriber over Redis Streams that keeps many messages in flight; see the package. Any number
// of goroutines may share it, but each stream has one subscription: its consumer name is the subscriber's.
type subscriber struct {
	cfg     subscriberConfig
	metrics *metrics
	closing context.Context
	close   context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

var _ message.Subscriber = (*subscriber)(nil)

// newSubscriber returns a subscriber for a configuration that was validated. It does not talk to Redis yet.
func newSubscriber(cfg subscriberConfig) (*subscriber, error) {
	m, err := newMetrics(cfg.registerer)
	if err != nil {
		return nil, err
	}
	s := &subscriber{cfg: cfg, metrics: m}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Subscribe starts reading a stream. It does not wait for Redis: a group that is missing is created once Redis answers, from the
// first entry on. When ctx is cancelled or the subscriber is closed, reading stops, messages in flight have closeTimeout to be
// acked, and then the channel is closed. Contexts of messages carry the values of ctx.
func (s *subscriber) Subscribe(ctx context.Context, stream string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	stop, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(s.closing, cancel)
	sub := newSubscription(stop, s, stream)
	s.running.Go(func() {
		defer close(sub.out)
		sub.run()
		detach()
		cancel()
	})
	return sub.out, nil
}

// Close stops all subscriptions, as cancelling their contexts does, and waits for them. It may be called again. The Redis client
// stays open.
func (s *subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.running.Wait()
	return nil
}

// run hands the messages of all claim streams to a handler until ctx is cancelled, then closes the subscriber.
func (s *subscriber) run(ctx context.Context, onMessage message.NoPublishHandlerFunc) error {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: s.cfg.closeTimeout + routerGrace}, routerLog{s.cfg.log})
	if err != nil {
		return fmt.Errorf("consumer: making the router: %w", err)
	}
	tidying, stop := context.WithCancel(ctx)
	var tidy sync.WaitGroup
	s.tidy(tidying, &tidy)
	defer tidy.Wait()
	defer stop()
	for p := range s.cfg.partitions {
		stream := lua.StreamKey(p)
		router.AddConsumerHandler(stream, stream, s, onMessage)
	}
	if err = errors.Join(router.Run(ctx), s.Close()); err != nil {
		return fmt.Errorf("consumer: running the router: %w", err)
	}
	return nil
}
