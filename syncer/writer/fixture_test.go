package writer_test

import (
	"testing"

	"dibs/internal/syncertest"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
)

// startWriterWithStep calls step between the steps of each flush.
func startWriterWithStep(t testing.TB, cfg writer.Config, step func(name string)) *writer.Writer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = syncertest.Quiet()
	}
	w, err := writer.NewWithStep(cfg, step)
	require.NoError(t, err)
	syncertest.CloseAfter(t, w)
	return w
}
