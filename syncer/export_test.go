package syncer

// NewWriterWithStep is NewWriter with a function that is called between the steps of a flush.
func NewWriterWithStep(cfg WriterConfig, step func(name string)) (*Writer, error) {
	w, err := newWriter(cfg.WithDefaults())
	if err != nil {
		return nil, err
	}
	w.step = step
	w.start()
	return w, nil
}
