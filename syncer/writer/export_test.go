package writer

import (
	"github.com/jonboulle/clockwork"
)

// Tuning is what a test changes of a writer beyond its Config.
type Tuning struct {
	Clock clockwork.Clock
	Step  func(name string) // called between the steps of a flush
}

// NewTuned is New with the tuning of how.
func NewTuned(cfg Config, how Tuning) (*Writer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if how.Clock == nil {
		how.Clock = clockwork.NewRealClock()
	}
	w := unstarted(cfg, how.Clock)
	w.steps.Observe(how.Step)
	w.start()
	return w, nil
}

func (w *Writer) Pending() int { return w.adder.Sum().Entries }

// Stopped is closed when the writer runs no more.
func (w *Writer) Stopped() <-chan struct{} { return w.stopped }

const AwaitedApart = awaitedApart
