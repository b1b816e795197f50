package writer

// NewWriterWithStep is NewWriter with a function that is called between the steps of a flush.
func NewWithStep(cfg Config, step func(name string)) (*Writer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w, err := unstarted(cfg)
	if err != nil {
		return nil, err
	}
	w.step = step
	w.start()
	return w, nil
}

// Pending is the number of events in the adder.
func (w *Writer) Pending() int { return int(w.adder.pending.Load()) }

// Held is the number of events that the writer has and has not answered for.
func (w *Writer) Held() int {
	free := 0
	for w.room.TryAcquire(1) {
		free++
	}
	w.room.Release(int64(free))
	return w.cfg.PendingMax - free
}
