package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	retryFirst = 10 * time.Millisecond
	// with its jitter of a half, less than a second after a server is back
	maxRetryTime = 650 * time.Millisecond
	retryTries   = 5 // of a statement or transaction that someone waits for
)

// Notice is called before each wait for another try: what failed, what kind of
// failure it is, and how long the wait is.
type Notice func(err error, f Failure, wait time.Duration)

// Retry runs op again, five times in all, while it fails for a reason that
// trying again may mend: a lost race, or a server that does not answer. It
// returns the last error; an error marked by Final it returns at once, without
// the mark.
func Retry(ctx context.Context, op func() error) error {
	return retry(ctx, retryTries, func(error, Failure, time.Duration) {}, op)
}

// RetryForever is Retry without a bound: it goes on until ctx ends, and then
// returns why that ended.
func RetryForever(ctx context.Context, notice Notice, op func() error) error {
	return retry(ctx, 0, notice, op)
}

// retry decides for all what is tried again. tries bounds the attempts; 0 is no
// bound.
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
	// the last of tries keeps its mark
	if final, is := errors.AsType[*backoff.PermanentError](err); is {
		return final.Unwrap()
	}
	return err
}

// Final marks an error as an answer rather than a failure: Retry returns it at
// once, without the mark.
func Final(err error) error { return backoff.Permanent(err) }
