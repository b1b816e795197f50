package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"dibs/internal/sleep"
)

// pause is how long a waiter waits before it asks again: spread around RetryPause, so that a crowd does not ask at once.
func (e *Env) pause() time.Duration {
	return e.RetryPause/2 + rand.N(max(e.RetryPause, 1)) //nolint:gosec // no one gains by guessing it
}

// acquire tries for a lock until it is had or patience is over; had is false then.
func (e *Env) acquire(ctx context.Context, try func(context.Context) (bool, error)) (had bool, err error) {
	deadline := time.Now().Add(e.Patience)
	for {
		had, err := try(ctx)
		if err != nil {
			return false, fmt.Errorf("lab: lock: %w", err)
		}
		if had {
			return true, nil
		}
		pause := e.pause()
		if time.Now().Add(pause).After(deadline) {
			return false, nil
		}
		if err := sleep.For(ctx, pause); err != nil {
			return false, err
		}
	}
}

// give releases a lock though the claim's context may be over, and adds its failure to err.
func give(ctx context.Context, err *error, release func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
	defer cancel()
	if failed := release(ctx); failed != nil {
		*err = errors.Join(*err, fmt.Errorf("lab: release: %w", failed))
	}
}
