package writer_test

import (
	"testing"

	"dibs/internal/syncertest"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
)

// startTuned starts a writer that is closed when the test ends.
func startTuned(t testing.TB, cfg writer.Config, how writer.Tuning) *writer.Writer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = syncertest.Quiet()
	}
	w, err := writer.NewTuned(cfg, how)
	require.NoError(t, err)
	syncertest.CloseAfter(t, w)
	return w
}
