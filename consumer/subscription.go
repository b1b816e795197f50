package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// finishTimeout bounds the last acks of a subscription that stops. What does not get through is delivered again.
const finishTimeout = 2 * time.Second

// subscription is one reader of one stream. A reader goroutine fills the window and hands messages out, a carrier
// goroutine per read waits for their verdicts, and a keeper goroutine talks to Redis about what is in flight.
type subscription struct {
	cfg      *SubscriberConfig
	stream   string
	consumer string
	log      *slog.Logger
	meters   meters

	stop     context.Context // ends when reading shall stop
	ctx      context.Context // ends when the drain is over; parent of all messages
	abandon  context.CancelFunc
	out      chan *message.Message
	window   *window
	acks     *ackQueue
	carriers sync.WaitGroup

	keepAliveOff bool // for tests of the tests
}

func newSubscription(stop context.Context, cfg *SubscriberConfig, stream, consumer string) *subscription {
	ctx, abandon := context.WithCancel(context.WithoutCancel(stop))
	return &subscription{
		cfg:      cfg,
		stream:   stream,
		consumer: consumer,
		log:      cfg.Logger.With("stream", stream, "group", cfg.Group, "consumer", consumer),
		meters:   cfg.Metrics.of(cfg.Group, stream),
		stop:     stop,
		ctx:      ctx,
		abandon:  abandon,
		out:      make(chan *message.Message),
		window:   newWindow(cfg.Window),
		acks:     newAckQueue(cfg.AckCount),
	}
}

// run lasts until stop ends and everything that was in flight is acked, or given up.
func (s *subscription) run() {
	read, kept, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		(&reader{subscription: s, retry: s.cfg.ReadBackoff.start()}).run()
	}()
	go func() {
		defer close(kept)
		s.keep(finish)
	}()
	<-s.stop.Done()
	s.drain(read)
	close(finish)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		<-kept
		s.finish()
	}()
	// A Redis that hangs holds commands for longer than their contexts last; nobody shall wait for that.
	timeout := time.NewTimer(finishTimeout)
	defer timeout.Stop()
	select {
	case <-finished:
	case <-timeout.C:
		s.log.Warn("stopping while Redis does not answer; what was not acked will be delivered again")
	}
}

// drain waits for the reader and the handlers, and gives up on them after CloseTimeout.
func (s *subscription) drain(read <-chan struct{}) {
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		<-read
		s.carriers.Wait()
	}()
	timeout := time.NewTimer(s.cfg.CloseTimeout)
	defer timeout.Stop()
	select {
	case <-settled:
	case <-timeout.C:
		s.log.Warn("stopping with messages in flight; they will be delivered again", "messages", s.window.count())
	}
	s.abandon()
	s.carriers.Wait()
}

// finish acks what is left to ack and hands the rest back to the group.
func (s *subscription) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	s.flush(ctx)
	s.handBack(ctx)
	s.meters.inFlight.Sub(float64(s.window.count()))
	s.meters.oldest.Set(0)
}

// pause waits; false when the subscription stops first.
func (s *subscription) pause(d time.Duration) bool { return pause(s.stop, d) }

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
