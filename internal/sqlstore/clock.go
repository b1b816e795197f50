package sqlstore

import (
	"context"
	"time"
)

// now is the time as MySQL keeps it.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// sleep waits, and returns why ctx ended when that came first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
