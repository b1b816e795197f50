package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// finishTimeout bounds the last acknowledgements of a subscription that stops. What does not reach Redis is delivered again.
const finishTimeout = 2 * time.Second

// subscription reads one stream. Its reader goroutine fills the window and sends messages, one goroutine per read waits for their
// verdicts, and its acker goroutine tells Redis what was acked and what is still in flight.
type subscription struct {
	cfg      *subscriberConfig
	stream   string
	log      *slog.Logger
	counters counters

	stop    context.Context // ends when reading has to stop
	ctx     context.Context // ends when the drain is over; parent of all messages
	giveUp  context.CancelFunc
	out     chan *message.Message
	window  *window
	acks    *ackQueue
	waiting sync.WaitGroup // goroutines that wait for verdicts or for the poison stream
}

func newSubscription(stop context.Context, s *subscriber, stream string) *subscription {
	ctx, giveUp := context.WithCancel(context.WithoutCancel(stop))
	return &subscription{
		cfg:      &s.cfg,
		stream:   stream,
		log:      s.cfg.log.With("stream", stream, "group", s.cfg.group, "consumer", s.cfg.name),
		counters: s.metrics.of(s.cfg.group, stream),
		stop:     stop,
		ctx:      ctx,
		giveUp:   giveUp,
		out:      make(chan *message.Message),
		window:   newWindow(s.cfg.window),
		acks:     newAckQueue(ackCount),
	}
}

// run lasts until stop ends and everything that was in flight is acknowledged or given up.
func (s *subscription) run() {
	acking, stopAcking := context.WithCancel(context.Background())
	defer stopAcking()
	var reader, acker sync.WaitGroup
	reader.Go(func() { newReader(s).run() })
	acker.Go(func() { s.ack(acking) })
	<-s.stop.Done()
	s.drain(&reader)
	stopAcking()
	// A Redis that hangs holds a command for longer than its context lasts. A stop does not wait for that.
	finished := within(finishTimeout, func() {
		acker.Wait()
		s.finish()
	})
	if !finished {
		s.log.Warn("Redis does not answer: the stop does not wait for it, and what was not acknowledged will be delivered again")
	}
}

// drain waits for the reader and the handlers, and gives up on them after closeTimeout.
func (s *subscription) drain(reader *sync.WaitGroup) {
	drained := within(s.cfg.closeTimeout, func() {
		reader.Wait()
		s.waiting.Wait()
	})
	if !drained {
		s.log.Warn("handlers did not finish in time: their messages will be delivered again", "messages", s.window.count())
	}
	s.giveUp()
	s.waiting.Wait()
}

// within reports whether f returned in time. It does not wait for f any longer.
func within(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// finish sends the last acknowledgements and leaves the rest for other consumers to claim at once.
func (s *subscription) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	s.sendAcks(ctx)
	s.expireIdle(ctx)
	s.counters.inFlight.Sub(float64(s.window.count()))
	s.counters.oldest.Set(0)
}
