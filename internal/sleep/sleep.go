// Package sleep waits for a while, or for the end of a context.
package sleep

import (
	"context"
	"time"
)

// For waits for d and returns nil, or why ctx ended when that comes first.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
