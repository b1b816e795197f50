package redisbatch

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// capacityWait is how long a reader waits for a worthwhile capacity before it takes what there is. It keeps reads from shrinking
// to a few entries each, and a window that is nearly full of stuck messages from stopping the rest.
const capacityWait = 5 * time.Millisecond

// entry is an entry from its read to its acknowledgement in Redis. The window guards its other fields.
type entry struct {
	redis.XMessage // without Values when the entry is gone from the stream

	refreshed time.Time // when Redis last reset its idle time
	acked     bool      // by its handler
	stale     bool      // Redis does not have it as pending any more
}

// window is what a subscription has read and not yet acknowledged in Redis. Any number of goroutines may share it.
type window struct {
	size  int
	freed chan struct{} // holds a token when entries were removed since the last wait
	acks  chan struct{} // holds a token when the first entry was acked

	mu    sync.Mutex
	held  int               // stale entries included, until their handlers are done
	byID  map[string]*entry // without stale entries
	acked []*entry          // to be acknowledged in Redis
}

func newWindow(size int) *window {
	return &window{
		size: size, freed: make(chan struct{}, 1), acks: make(chan struct{}, 1), byID: make(map[string]*entry, min(size, DefaultWindow)),
	}
}

// add takes in the entries that are not in flight already and returns them, in order.
func (w *window) add(read []redis.XMessage) (added []*entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	block := make([]entry, len(read))
	for i := range read {
		if w.byID[read[i].ID] == nil {
			block[i] = entry{XMessage: read[i], refreshed: time.Now()}
			w.byID[read[i].ID] = &block[i]
			added = append(added, &block[i])
		}
	}
	w.held += len(added)
	return added
}

// holds reports whether the entry is in flight.
func (w *window) holds(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id] != nil
}

// ack queues entries for their acknowledgement in Redis; those that were acked before are left alone.
func (w *window) ack(entries ...*entry) {
	w.mu.Lock()
	before := len(w.acked)
	for _, e := range entries {
		if !e.acked {
			e.acked = true
			w.acked = append(w.acked, e)
		}
	}
	first := before == 0 && len(w.acked) > 0
	w.mu.Unlock()
	if first {
		signal(w.acks)
	}
}

// unacked returns those of the entries that are not acked.
func (w *window) unacked(entries []*entry) (left []*entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		if !e.acked {
			left = append(left, e)
		}
	}
	return left
}

// toAck returns up to limit acked entries, and the ids of those that are not stale. They stay in the window until they are removed.
func (w *window) toAck(limit int) (entries []*entry, ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	entries = w.acked[:min(limit, len(w.acked))]
	for _, e := range entries {
		if !e.stale {
			ids = append(ids, e.ID)
		}
	}
	return entries, ids
}

// removeAcked removes the first n acked entries, which Redis knows of now.
func (w *window) removeAcked(n int) {
	w.mu.Lock()
	for _, e := range w.acked[:n] {
		if !e.stale {
			delete(w.byID, e.ID)
		}
	}
	clear(w.acked[:n])
	w.acked = w.acked[n:]
	w.held -= n
	w.mu.Unlock()
	signal(w.freed)
}

// allAcked reports whether nothing else is in flight that could be acked.
func (w *window) allAcked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked) >= w.held
}

// invalidate makes all entries stale: Redis has lost the group and with it their pending state. Their ids may come again, and their
// acks are not sent. They count until their handlers are done.
func (w *window) invalidate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.byID {
		e.stale = true
	}
	clear(w.byID)
}

// due returns the entries, in no order, that Redis was last told about before a time, and notes that it is told about them now.
func (w *window) due(before time.Time) (due []*entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, e := range w.byID {
		if e.refreshed.Before(before) {
			e.refreshed = now
			due = append(due, e)
		}
	}
	return due
}

func (w *window) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// awaitCapacity returns how many more entries the window takes once it is as much as wanted, or any after capacityWait; 0 when ctx ends
// first.
func (w *window) awaitCapacity(ctx context.Context, wanted int) int {
	timeout := time.NewTimer(capacityWait)
	defer timeout.Stop()
	for {
		if free := w.size - w.count(); free >= wanted {
			return free
		}
		select {
		case <-w.freed:
		case <-timeout.C:
			wanted = 1
		case <-ctx.Done():
			return 0
		}
	}
}

// oldest is the age of the oldest entry in flight since it was written, by Redis' clock; 0 when nothing is in flight.
func (w *window) oldest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first int64
	for id := range w.byID {
		written, _, _ := strings.Cut(id, "-")
		if ms, err := strconv.ParseInt(written, 10, 64); err == nil && (first == 0 || ms < first) {
			first = ms
		}
	}
	if first == 0 {
		return 0
	}
	return time.Since(time.UnixMilli(first))
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
