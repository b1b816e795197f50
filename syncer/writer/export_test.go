package writer

import (
	"time"

	"github.com/jonboulle/clockwork"
)

// Tuning is what a test changes of a writer beyond its Config.
type Tuning struct {
	Clock        clockwork.Clock
	FlushTimeout time.Duration
	PendingMax   int
	Step         func(name string) // called between the steps of a flush
}

// NewTuned is New with what is set in how.
func NewTuned(cfg Config, how Tuning) (*Writer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := cfg.tuning()
	if how.Clock != nil {
		t.clock = how.Clock
	}
	if how.FlushTimeout != 0 {
		t.flushTimeout = how.FlushTimeout
	}
	if how.PendingMax != 0 {
		t.pendingMax = how.PendingMax
	}
	w := unstarted(cfg, t)
	w.steps.Observe(how.Step)
	w.start()
	return w, nil
}

// Pending is the number of events in the adder.
func (w *Writer) Pending() int { return int(w.adder.pending.Load()) }

// Held is the number of events that the writer has and has not answered for.
func (w *Writer) Held() int {
	free := 0
	for w.capacity.TryAcquire(1) {
		free++
	}
	w.capacity.Release(int64(free))
	return w.pendingMax - free
}

// Queue has the claims of a campaign held back, as if another transaction had locked it.
func (w *Writer) Queue(campaignID string) {
	w.locked.add(campaignID, &waiting{done: make(chan struct{})})
}
