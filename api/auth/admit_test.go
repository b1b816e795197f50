package auth

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Signatures of an address that forged too many are verified one at a time. A token waits for its turn, and not for ever.
func TestAdmit_AddressesThatForgeShareOneTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRefusals(&Config{Logger: slog.New(slog.DiscardHandler), Clock: time.Now})
		admit := func(remote string) (func(), bool) {
			done, p := r.admit(t.Context(), remote)
			return done, p == nil
		}
		for range forgedAtOnce {
			_, first := admit("192.0.2.1:1")
			_, second := admit("192.0.2.1:1")
			require.True(t, first && second, "side by side")
			_ = r.forged(t.Context(), "192.0.2.1:1")
			_ = r.forged(t.Context(), "192.0.2.2:1")
		}
		done, ok := admit("192.0.2.1:1")
		require.True(t, ok)
		_, ok = admit("192.0.2.3:1")
		require.True(t, ok, "other addresses do not wait")

		admitted := make(chan time.Duration)
		started := time.Now()
		go func() {
			next, ok := admit("192.0.2.2:1")
			if ok {
				next()
			}
			admitted <- time.Since(started)
		}()
		<-time.After(verifyWait / 2)
		done()
		require.Equal(t, verifyWait/2, <-admitted)

		_, ok = admit("192.0.2.1:1")
		require.True(t, ok, "the budget came back in that time")
		for range forgedAtOnce {
			_ = r.forged(t.Context(), "192.0.2.1:1")
		}
		done, ok = admit("192.0.2.1:1")
		require.True(t, ok)
		defer done()
		started = time.Now()
		_, p := r.admit(t.Context(), "192.0.2.1:1")
		require.NotNil(t, p)
		require.Equal(t, "rate_limited", string(p.Code))
		require.Equal(t, verifyWait, time.Since(started))
	})
}
