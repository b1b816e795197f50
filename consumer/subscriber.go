package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrClosed says that the subscriber was closed.
var ErrClosed = errors.New("consumer: subscriber is closed")

// Subscriber is a watermill message.Subscriber over Redis Streams that keeps many messages in flight; see the package.
// Any number of goroutines may share it.
type Subscriber struct {
	cfg     SubscriberConfig
	closing context.Context
	close   context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	taken  map[slot]bool

	keepAliveOff bool // for tests of the tests
}

// slot is a place among the subscriptions of one topic. Each has a consumer name of its own, the same after a restart.
type slot struct {
	topic  string
	number int
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber returns a Subscriber, or ErrConfig wrapped. It does not talk to Redis yet.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Subscriber{cfg: cfg, taken: map[slot]bool{}}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Subscribe starts reading a stream. It does not wait for Redis: a group that is missing is made once Redis is there, from
// the first entry on. When ctx is cancelled or the Subscriber is closed, reading stops, messages in flight have
// CloseTimeout to be acked, and then the channel is closed. Contexts of messages carry the values of ctx.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if topic == "" {
		return nil, errors.New("consumer: empty topic")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	stop, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.closing, cancel)
	place := s.takeSlot(topic)
	sub := newSubscription(stop, &s.cfg, topic, s.consumerName(place))
	sub.keepAliveOff = s.keepAliveOff
	s.running.Go(func() {
		defer close(sub.out)
		sub.run()
		s.leaveSlot(place)
		unhook()
		cancel()
	})
	return sub.out, nil
}

// SubscribeInitialize makes the group, and the stream where it is missing.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	return ensureGroup(s.closing, s.cfg.Client, topic, s.cfg.Group)
}

// Close stops all subscriptions as the cancelling of their contexts does, and waits for them. It may be called again.
// The Redis client stays open.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.running.Wait()
	return nil
}

func (s *Subscriber) takeSlot(topic string) slot {
	place := slot{topic: topic}
	for s.taken[place] {
		place.number++
	}
	s.taken[place] = true
	return place
}

func (s *Subscriber) leaveSlot(place slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, place)
}

func (s *Subscriber) consumerName(place slot) string {
	if place.number == 0 {
		return s.cfg.Consumer
	}
	return fmt.Sprintf("%s#%d", s.cfg.Consumer, place.number+1)
}
