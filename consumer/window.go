package consumer

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// roomPatience is how long a reader waits for a worthwhile amount of room before it takes what there is. It keeps reads
// from shrinking to a few entries each, and a window that is nearly full of stuck messages from stopping the rest.
const roomPatience = 5 * time.Millisecond

// window is what a subscription has read and not yet acked in Redis. Any number of goroutines may share it.
type window struct {
	size  int
	freed chan struct{} // holds a token when room was made since it was last looked at

	mu   sync.Mutex
	held int                // those forgotten included, until their handlers are done
	byID map[string]*flight // those not forgotten
}

func newWindow(size int) *window {
	return &window{size: size, freed: make(chan struct{}, 1), byID: make(map[string]*flight, size)}
}

// admit adds the flights that are not in flight already and returns them, in order; their time starts at now.
func (w *window) admit(flights []*flight, now time.Time) []*flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := flights[:0]
	for _, f := range flights {
		if _, there := w.byID[f.id]; there {
			continue
		}
		f.touched = now
		w.byID[f.id] = f
		kept = append(kept, f)
	}
	w.held += len(kept)
	return kept
}

// holds tells whether the entry is in flight.
func (w *window) holds(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, there := w.byID[id]
	return there
}

// release makes the room of flights free.
func (w *window) release(flights []*flight) {
	w.mu.Lock()
	for _, f := range flights {
		if !f.forgotten {
			delete(w.byID, f.id)
		}
	}
	w.held -= len(flights)
	w.mu.Unlock()
	signal(w.freed)
}

// forget parts with all flights because Redis knows nothing of them any more: their acks are not sent, and their ids may
// come again. They keep their room until their handlers are done.
func (w *window) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.byID {
		f.forgotten = true
	}
	clear(w.byID)
}

// current returns the flights that were not forgotten.
func (w *window) current(flights []*flight) []*flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := make([]*flight, 0, len(flights))
	for _, f := range flights {
		if !f.forgotten {
			kept = append(kept, f)
		}
	}
	return kept
}

// untouched returns the flights that Redis was last told about before the given time.
func (w *window) untouched(before time.Time) []*flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due []*flight
	for _, f := range w.byID {
		if f.touched.Before(before) {
			due = append(due, f)
		}
	}
	return due
}

func (w *window) touch(flights []*flight, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range flights {
		f.touched = now
	}
}

// all returns every flight that was not forgotten, in no order.
func (w *window) all() []*flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	flights := make([]*flight, 0, len(w.byID))
	for _, f := range w.byID {
		flights = append(flights, f)
	}
	return flights
}

func (w *window) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// room is how many more flights the window takes; never below 0.
func (w *window) room() int { return max(0, w.size-w.count()) }

// await returns the room once there is as much as wanted, or any after a little patience; 0 when done closes first.
func (w *window) await(done <-chan struct{}, wanted int) int {
	if room := w.room(); room >= wanted {
		return room
	}
	patience := time.NewTimer(roomPatience)
	defer patience.Stop()
	for {
		select {
		case <-w.freed:
		case <-patience.C:
			wanted = 1
		case <-done:
			return 0
		}
		if room := w.room(); room >= wanted {
			return room
		}
	}
}

// oldest is when the oldest entry in flight was written to the stream, by Redis' clock; zero when nothing is in flight.
func (w *window) oldest() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var least int64
	for id := range w.byID {
		if ms := entryMs(id); least == 0 || ms < least {
			least = ms
		}
	}
	if least == 0 {
		return time.Time{}
	}
	return time.UnixMilli(least)
}

// entryMs is the time part of an entry's id; 0 when it has none.
func entryMs(id string) int64 {
	head, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return 0
	}
	return ms
}
