// Package lease runs work in one process at a time, under a lease in Redis.
package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"dibs/internal/sleep"
	"dibs/lua"
)

const (
	nameFor = 2 * time.Second // lease time after its holder died
	// doubled, in case Redis' clock is set back.
	namePatience = 2*nameFor + time.Second
	namePoll     = 100 * time.Millisecond
	forever      = 100 * 365 * 24 * time.Hour
)

// Consumer is a consumer name of a group. Only one process at a time may read
// under it: two would take each other's pending entries.
type Consumer struct {
	Scripts     *lua.Scripts
	Group, Name string
	Taken       error // the error if another process holds it

	// how long to wait for it at first, and again after it expired,
	// while Redis answers
	first, again time.Duration
	// identifies this process: it may retake its own lease after a stall
	token string
	lease *lua.Lock
}

// While runs work while this process holds the name. Errors:
// Taken, and those of run.
func (l Consumer) While(ctx context.Context, run func(context.Context) error) error {
	l.first = namePatience
	l.again = namePatience
	return l.run(ctx, run)
}

// Alone runs a group's only consumer. Other processes stand by.
// If another process takes over, run's context ends with the
// cause Taken, replaced is called, and this one stands by.
//
// Redis may lose a lease: its clock jumps ahead, or a replica
// without it is promoted. The holder notices at the next
// renewal, at the latest when the lease expires by its own
// clock. So a new holder waits that long before it starts.
func (l Consumer) Alone(ctx context.Context, replaced func(), run func(context.Context) error) error {
	l.first = forever
	for {
		err := l.run(ctx, func(ctx context.Context) error {
			if sleep.For(ctx, nameFor) != nil {
				return nil //nolint:nilerr // it was stopped
			}
			return run(ctx)
		})
		if !errors.Is(err, l.Taken) {
			return err
		}
		replaced()
	}
}

func (l *Consumer) run(ctx context.Context, run func(context.Context) error) error {
	l.token = rand.Text()
	taken, err := l.take(ctx, l.first)
	if err != nil || !taken {
		return err
	}
	again := func(ctx context.Context) error {
		_, err := l.take(ctx, l.again)
		return err
	}
	return Renewed(ctx, nameFor/3, again, func(ctx context.Context) error { return l.lease.Release(ctx) }, run)
}

// take acquires or renews the lease once no other process holds
// it. It returns false if ctx ended first. Errors: Taken.
func (l *Consumer) take(ctx context.Context, patience time.Duration) (bool, error) {
	until := time.Now().Add(patience)
	for {
		// leaves time for a second attempt before the lease expires
		asking, cancel := context.WithTimeout(ctx, nameFor/2)
		lease, err := l.Scripts.LockConsumer(asking, l.Group, l.Name, l.token, nameFor)
		cancel()
		switch {
		case err == nil:
			l.lease = lease
			return true, nil
		case ctx.Err() != nil:
			return false, nil //nolint:nilerr // it was stopped
		case !errors.Is(err, lua.ErrLocked):
			until = time.Now().Add(patience) // Redis is unreachable
		case time.Now().After(until):
			return false, l.Taken
		}
		_ = sleep.For(ctx, namePoll) // ctx is checked above
	}
}

// Renewed runs work and calls renew at once and then periodically. An error
// of renew is the cause that ends work's context, and is returned with work's
// error. At the end it calls giveBack with a second's limit: what was renewed
// expires by itself.
func Renewed(ctx context.Context, every time.Duration, renew, giveBack, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	renewed := make(chan error, 1)
	go func() {
		err := renew(ctx)
		for err == nil && sleep.For(ctx, every) == nil {
			err = renew(ctx)
		}
		cancel(err)
		giving, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		_ = giveBack(giving)
		renewed <- err
	}()
	err := work(ctx)
	cancel(nil)
	return errors.Join(err, <-renewed)
}
