// Package sleep waits for a time, or for the end of a context.
package sleep

import (
	"context"
	"time"
)

// For waits for d and returns nil, or ctx's cause if ctx ends first.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
