package consumer

import (
	"sync"
	"time"

	"dibs/lua"
)

// roomWait is how long a reader waits for a worthwhile amount of room before it takes what there is. It keeps reads from shrinking
// to a few entries each, and a window that is nearly full of stuck messages from stopping the rest.
const roomWait = 5 * time.Millisecond

// window is what a subscription has read and not yet acknowledged in Redis. Any number of goroutines may share it.
type window struct {
	size  int
	freed chan struct{} // holds a token when entries were removed since the last look

	mu   sync.Mutex
	held int               // stale entries included, until their handlers are done
	byID map[string]*entry // without stale entries
}

func newWindow(size int) *window {
	return &window{size: size, freed: make(chan struct{}, 1), byID: make(map[string]*entry, size)}
}

// add takes in the entries that are not in flight already and returns them, in order.
func (w *window) add(entries []*entry, now time.Time) []*entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	added := entries[:0]
	for _, e := range entries {
		if _, inFlight := w.byID[e.id]; inFlight {
			continue
		}
		e.refreshed = now
		w.byID[e.id] = e
		added = append(added, e)
	}
	w.held += len(added)
	return added
}

// holds reports whether the entry is in flight.
func (w *window) holds(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, inFlight := w.byID[id]
	return inFlight
}

func (w *window) remove(entries []*entry) {
	w.mu.Lock()
	for _, e := range entries {
		if !e.stale {
			delete(w.byID, e.id)
		}
	}
	w.held -= len(entries)
	w.mu.Unlock()
	signal(w.freed)
}

// invalidate makes all entries stale: Redis has lost the group and with it their pending state. Their ids may come again, and their
// acks are not sent. They take up room until their handlers are done.
func (w *window) invalidate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.byID {
		e.stale = true
	}
	clear(w.byID)
}

// pendingIDs returns the ids of those of the entries that are not stale.
func (w *window) pendingIDs(entries []*entry) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.stale {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// refreshedBefore returns the entries that Redis was last told about before the given time, in no order.
func (w *window) refreshedBefore(t time.Time) []*entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due []*entry
	for _, e := range w.byID {
		if e.refreshed.Before(t) {
			due = append(due, e)
		}
	}
	return due
}

func (w *window) setRefreshed(entries []*entry, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		e.refreshed = now
	}
}

func (w *window) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// room is how many more entries the window takes; never below 0.
func (w *window) room() int { return max(0, w.size-w.count()) }

// awaitRoom returns the room once it is as much as wanted, or any after roomWait; 0 when done closes first.
func (w *window) awaitRoom(done <-chan struct{}, wanted int) int {
	if room := w.room(); room >= wanted {
		return room
	}
	timeout := time.NewTimer(roomWait)
	defer timeout.Stop()
	for {
		select {
		case <-w.freed:
		case <-timeout.C:
			wanted = 1
		case <-done:
			return 0
		}
		if room := w.room(); room >= wanted {
			return room
		}
	}
}

// oldest is the age of the oldest entry in flight since it was written, by Redis' clock; 0 when nothing is in flight.
func (w *window) oldest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first lua.EntryID
	for text := range w.byID {
		if id, err := lua.ParseEntryID(text); err == nil && (first == lua.EntryID{} || id.Less(first)) {
			first = id
		}
	}
	if first == (lua.EntryID{}) {
		return 0
	}
	return time.Since(time.UnixMilli(int64(first.Ms)))
}
