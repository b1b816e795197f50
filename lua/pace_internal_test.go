package lua

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// stageAll stages records while others run scripts at a rate, and
// returns how long it took.
func stageAll(t *testing.T, records int64, others float64, fail error) time.Duration {
	t.Helper()
	started := time.Now()
	p := &pace{rate: rateFor(records), calls: func(context.Context) (int64, error) {
		return int64(others * time.Since(started).Seconds()), fail
	}}
	p.check(t.Context(), started)
	for left := records; left > 0; {
		n := min(left, int64(p.commands()*stageFields))
		time.Sleep(time.Duration(n) * time.Microsecond) //nolint:forbidigo // what Redis takes, by a fake clock
		require.NoError(t, p.after(t.Context(), int(n)))
		left -= n
	}
	return time.Since(started)
}

func TestPace(t *testing.T) {
	for _, one := range []struct {
		name     string
		records  int64
		others   float64 // scripts a second
		fail     error
		from, to time.Duration
	}{
		{name: "hardly anybody claims", records: 2_000_000, others: 50, from: 2 * time.Second, to: 2 * time.Second},
		{name: "others claim", records: 2_000_000, others: 5_000, from: 18 * time.Second, to: 21 * time.Second},
		{name: "few records are not worth it", records: 20_000, others: 5_000, from: 20 * time.Millisecond, to: 20 * time.Millisecond},
		{name: "ten million claims take no longer than they must", records: 20_000_000, others: 5_000, from: 20 * time.Second, to: 25 * time.Second},
		{name: "the server does not say", records: 2_000_000, fail: errors.New("NOPERM"), from: 18 * time.Second, to: 21 * time.Second},
	} {
		t.Run(one.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				took := stageAll(t, one.records, one.others, one.fail)
				require.GreaterOrEqual(t, took, one.from)
				require.LessOrEqual(t, took, one.to)
			})
		})
	}
}
