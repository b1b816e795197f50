package torture

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// /readyz counts as wrong only after two seconds of not ready
// while claims are served.
func TestReadinessIsComparedWithWhatIsServed(t *testing.T) {
	t.Parallel()
	started := time.Now()
	at := func(ms int) time.Time { return started.Add(time.Duration(ms) * time.Millisecond) }
	for name, try := range map[string]struct {
		no      func(ms int) bool
		claims  func(ms int) bool
		unready int
		wrong   int
	}{
		"ready":                   {no: func(int) bool { return false }, claims: func(int) bool { return true }},
		"away, and says so":       {no: func(ms int) bool { return ms >= 1000 && ms < 9000 }, claims: func(ms int) bool { return ms < 1000 }, unready: 7900},
		"is found out in time":    {no: func(ms int) bool { return ms >= 1000 && ms < 2900 }, claims: func(int) bool { return true }, unready: 1800},
		"says no and serves":      {no: func(ms int) bool { return ms >= 1000 }, claims: func(int) bool { return true }, unready: 8900, wrong: 6900},
		"serves again for a time": {no: func(ms int) bool { return ms >= 1000 }, claims: func(ms int) bool { return ms >= 3000 && ms < 6000 }, unready: 8900, wrong: 1000},
		"comes and goes":          {no: func(ms int) bool { return ms >= 1000 }, claims: func(ms int) bool { return ms%1000 < 500 }, unready: 8900},
		"serves again, just now":  {no: func(ms int) bool { return ms >= 1000 && ms < 7000 }, claims: func(ms int) bool { return ms >= 5500 }, unready: 5900},
	} {
		var r readiness
		for ms := 0; ms < 10_000; ms += 100 {
			if try.claims(ms) {
				r.claimed("c", at(ms-20), at(ms-10))
			} else {
				r.refused("c", at(ms-10))
			}
			r.said(try.no(ms), at(ms))
		}
		unready, wrong := r.sums()
		require.InDelta(t, try.unready, unready.Milliseconds(), 101, name)
		require.InDelta(t, try.wrong, wrong.Milliseconds(), 201, name)
	}
}
