package auth

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Verified signatures a second must be limited, whoever sends them. A token
// must wait, but not for long.
func TestAdmit_BoundsTheSignaturesOfASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRefusals(&Config{Logger: slog.New(slog.DiscardHandler), Clock: time.Now})
		started := time.Now()
		for range r.checks.Burst() {
			require.Nil(t, r.admit(t.Context(), "192.0.2.1:1"))
		}
		require.Zero(t, time.Since(started), "side by side")
		require.Nil(t, r.admit(t.Context(), "192.0.2.2:1"))
		require.Positive(t, time.Since(started), "it waited for its turn")
		for range 3 {
			r.checks.ReserveN(time.Now(), r.checks.Burst())
		}
		p := r.admit(t.Context(), "192.0.2.1:1")
		require.NotNil(t, p)
		require.Equal(t, "rate_limited", string(p.Code))
	})
}
