package pulse_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/pulse"
)

func TestPulse_NamesTheLoopThatIsStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pulse.Heartbeat
		require.NoError(t, p.Stuck(0), "no loop is stuck")
		p.Beat("fast", time.Second)
		p.Beat("slow", time.Minute)
		<-time.After(time.Second)
		require.NoError(t, p.Stuck(0))
		<-time.After(time.Second)
		require.ErrorContains(t, p.Stuck(0), "fast is stuck: it should have turned 1s ago")
		require.NoError(t, p.Stuck(time.Minute))
		p.Beat("fast", time.Second)
		require.NoError(t, p.Stuck(0))
		var noOne *pulse.Heartbeat
		noOne.Beat("fast", time.Second)
	})
}
