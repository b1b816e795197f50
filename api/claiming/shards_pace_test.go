package claiming_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api/claiming"
	"dibs/internal/apitest"
	"dibs/models"
)

// A shard's pace is that of all processes, or one of many would ask for units when they last for a many-th of the time.
func TestPaceIsThatOfTheShard(t *testing.T) {
	t.Parallel()
	p, now := &claiming.Pace{}, apitest.Now
	require.Zero(t, p.Add(now, 1_000, 10, 20), "nothing is known of the time before")
	require.Zero(t, p.Add(now.Add(models.PaceSpan/2), 1_100, 10, 20))
	now = now.Add(models.PaceSpan)
	require.EqualValues(t, 20*2*20, p.Add(now, 1_400, 10, 20), "this process' twenty claims of two units among four hundred")
	now = now.Add(2 * models.PaceSpan)
	require.EqualValues(t, 50, p.Add(now, 1_410, 100, 100), "calls that overtake one another: its own at least; half of twice the time")
	now = now.Add(models.PaceSpan)
	require.EqualValues(t, 0, p.Add(now, 1_410, 0, 0))
	require.EqualValues(t, 0, p.Add(now.Add(time.Minute), 9_000, 10, 10), "what was long ago is no pace")
}
