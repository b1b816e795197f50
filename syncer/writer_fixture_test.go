package syncer_test

import (
	"dibs/syncer"
	"testing"

	"github.com/stretchr/testify/require"
)

// startWriterWithStep calls step between the steps of each flush.
func startWriterWithStep(t testing.TB, cfg syncer.WriterConfig, step func(name string)) *syncer.Writer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	w, err := syncer.NewWriterWithStep(cfg, step)
	require.NoError(t, err)
	closeAfter(t, w)
	return w
}
