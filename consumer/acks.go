package consumer

import "sync"

// ackQueue gathers the flights whose handlers have acked until they are acked in Redis together.
type ackQueue struct {
	enough int
	some   chan struct{} // holds a token when the queue is no longer empty
	full   chan struct{} // holds a token when the queue has reached enough

	mu      sync.Mutex
	flights []*flight
}

func newAckQueue(enough int) *ackQueue {
	return &ackQueue{enough: enough, some: make(chan struct{}, 1), full: make(chan struct{}, 1)}
}

func (q *ackQueue) add(flights ...*flight) {
	q.mu.Lock()
	before := len(q.flights)
	q.flights = append(q.flights, flights...)
	after := len(q.flights)
	q.mu.Unlock()
	if before == 0 && after > 0 {
		signal(q.some)
	}
	if before < q.enough && after >= q.enough {
		signal(q.full)
	}
}

// take empties the queue.
func (q *ackQueue) take() []*flight {
	q.mu.Lock()
	defer q.mu.Unlock()
	flights := q.flights
	q.flights = make([]*flight, 0, cap(flights))
	return flights
}

func (q *ackQueue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.flights)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
