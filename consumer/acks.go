package consumer

import "sync"

// ackQueue gathers the entries whose handlers have acked, until they are acknowledged in Redis together.
type ackQueue struct {
	fullAt   int
	nonEmpty chan struct{} // holds a token when the queue has become non-empty
	full     chan struct{} // holds a token when the queue has reached fullAt

	mu      sync.Mutex
	entries []*entry
}

func newAckQueue(fullAt int) *ackQueue {
	return &ackQueue{fullAt: fullAt, nonEmpty: make(chan struct{}, 1), full: make(chan struct{}, 1)}
}

func (q *ackQueue) add(entries ...*entry) {
	q.mu.Lock()
	before := len(q.entries)
	q.entries = append(q.entries, entries...)
	after := len(q.entries)
	q.mu.Unlock()
	if before == 0 && after > 0 {
		signal(q.nonEmpty)
	}
	if before < q.fullAt && after >= q.fullAt {
		signal(q.full)
	}
}

// take empties the queue.
func (q *ackQueue) take() []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	entries := q.entries
	q.entries = make([]*entry, 0, cap(entries))
	return entries
}

func (q *ackQueue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
