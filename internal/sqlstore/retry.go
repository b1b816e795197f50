package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	retryFirst = 10 * time.Millisecond
	// with its jitter of a half, retries within a second of the
	// server's recovery.
	maxRetryTime = 650 * time.Millisecond
	retryTries   = 5 // while a caller waits for the statement or transaction
)

// Notice is called before each retry, with the error, its kind and the wait.
type Notice func(err error, f Failure, wait time.Duration)

// Retry runs op up to five times while it fails for a reason that a retry may
// fix: a conflict or an unreachable server. It returns the last error. An
// error marked by Final is returned at once, without the mark.
func Retry(ctx context.Context, op func() error) error {
	return retry(ctx, retryTries, func(error, Failure, time.Duration) {}, op)
}

// RetryForever is Retry without a limit. When ctx ends, it
// returns ctx's cause.
func RetryForever(ctx context.Context, notice Notice, op func() error) error {
	return retry(ctx, 0, notice, op)
}

// retry alone decides what is retried. tries limits the
// attempts; 0 is unlimited.
func retry(ctx context.Context, tries uint, notice Notice, op func() error) error {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval = retryFirst
	waits.MaxInterval = maxRetryTime
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := op()
		if _, isFinal := errors.AsType[*backoff.PermanentError](err); isFinal {
			return struct{}{}, err
		}
		switch FailureOf(err) {
		case FailureNone:
			return struct{}{}, nil
		case FailureTransient, FailureClash:
			return struct{}{}, err
		default:
			return struct{}{}, backoff.Permanent(err)
		}
	}, backoff.WithBackOff(waits), backoff.WithMaxTries(tries), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, wait time.Duration) { notice(err, FailureOf(err), wait) }))
	// the last attempt's error keeps its mark
	if final, is := errors.AsType[*backoff.PermanentError](err); is {
		return final.Unwrap()
	}
	return err
}

// Final marks an error as an answer rather than a failure. Retry
// returns it at once, without the mark.
func Final(err error) error { return backoff.Permanent(err) }
