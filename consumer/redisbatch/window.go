package redisbatch

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// capacityWait is how long a reader waits for more capacity. Without it
// reads would shrink to a few entries. Without its end a window nearly
// full of stalled messages would block.
const capacityWait = 5 * time.Millisecond

// entry is an entry from its read to its
// XACK. The window guards its other fields.
type entry struct {
	redis.XMessage // without Values if it was trimmed

	refreshed time.Time // last reset of its idle time in Redis
	acked     bool      // by its handler
	stale     bool      // no longer pending in Redis
}

// window has the entries that are read and not yet acknowledged in Redis.
// It is safe for concurrent use.
type window struct {
	size  int
	freed chan struct{} // has a token after entries were removed
	acks  chan struct{} // has a token after the first entry was acked

	mu    sync.Mutex
	held  int               // with stale entries, until their handlers return
	byID  map[string]*entry // without stale entries
	acked []*entry          // to be acknowledged in Redis
}

func newWindow(size int) *window {
	return &window{
		size: size, freed: make(chan struct{}, 1), acks: make(chan struct{}, 1),
		byID: make(map[string]*entry, min(size, DefaultWindow)),
	}
}

// add adds the entries that are not in flight and returns them, in order.
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

func (w *window) holds(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id] != nil
}

// ack queues entries for their XACK, each once.
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

// toAck returns up to limit acked entries,
// and the ids of those that are not stale.
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

// allAcked reports whether no other entry could be acked.
func (w *window) allAcked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked) >= w.held
}

// forget removes entries that are not delivered, nor acked.
func (w *window) forget(entries []*entry) {
	w.mu.Lock()
	for _, e := range entries {
		if !e.stale {
			delete(w.byID, e.ID)
		}
	}
	w.held -= len(entries)
	w.mu.Unlock()
	signal(w.freed)
}

// invalidate makes all entries stale after a loss of
// the group. Their ids may occur again, and their acks
// are not sent. They count until their handlers return.
func (w *window) invalidate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.byID {
		e.stale = true
	}
	clear(w.byID)
}

// due returns and marks entries that were
// last refreshed before a time, in no order.
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

// awaitCapacity waits for the wanted capacity, or any after
// capacityWait. It returns 0 if ctx ends first.
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

// oldest is the age of the oldest entry in flight, by its id; 0 without one.
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
