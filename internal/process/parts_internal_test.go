package process

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// A MySQL that doesn't answer must not keep older results about Redis.
func TestParts_AnAnswerIsAsOldAsItsCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		errAway := errors.New("away")
		redis := errAway
		checks := 0
		p := newParts(prometheus.NewRegistry(), func(context.Context) map[string]error {
			checks++
			found := redis
			redis = nil             // it answers again since
			time.Sleep(pingTimeout) //nolint:forbidigo // MySQL is silent; the clock is a fake
			return map[string]error{partRedis: found}
		})
		require.ErrorIs(t, p.now(t.Context())[partRedis], errAway)
		require.NoError(t, p.now(t.Context())[partRedis])
		require.Equal(t, 2, checks)
	})
}

// Many calls within a moment must cause one check.
func TestParts_AnAnswerHoldsForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks := 0
		p := newParts(prometheus.NewRegistry(), func(context.Context) map[string]error {
			checks++
			return nil
		})
		p.now(t.Context())
		time.Sleep(partsFor - time.Millisecond) //nolint:forbidigo // the clock is a fake
		p.now(t.Context())
		require.Equal(t, 1, checks)
		time.Sleep(time.Millisecond) //nolint:forbidigo // the clock is a fake
		p.now(t.Context())
		require.Equal(t, 2, checks)
	})
}
