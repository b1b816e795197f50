// Package lease has one process at a time do something: it holds a lease of
// Redis while it runs.
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
	nameFor = 2 * time.Second // a name is kept so long for a process that died
	// twice as long if Redis' clock is set back in the meantime
	namePatience = 2*nameFor + time.Second
	namePoll     = 100 * time.Millisecond
	forever      = 100 * 365 * 24 * time.Hour
)

// Consumer is a name under which one process at a time reads a group: two would
// take each other's entries for their own.
type Consumer struct {
	Scripts     *lua.Scripts
	Group, Name string
	Taken       error // says that another process has it

	// how long it is waited for, and again when the lease ran out, while Redis
	// answers
	first, again time.Duration
	// of this process: it takes its own lease again after it, or Redis, stood
	// still
	token string
	lease *lua.Lock
}

// While runs something as long as no other process has the name. Errors: Taken,
// and those of run.
func (l Consumer) While(ctx context.Context, run func(context.Context) error) error {
	l.first = namePatience
	l.again = namePatience
	return l.run(ctx, run)
}

// Alone runs the one consumer of a group. A process that is not the first
// stands by, and so does one that finds another in its place, which is told:
// the cause of run's context is Taken then.
//
// Redis may lose a lease that its holder counts on: its clock jumps ahead, or a
// replica takes over that never had it. The holder notices when it renews the
// lease, at the latest when it runs out by its own clock. So whoever takes a
// lease waits that long before it begins.
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

// take takes the lease, or starts its time again, once no other process has it.
// It reports false when ctx ended first. Errors: Taken.
func (l *Consumer) take(ctx context.Context, patience time.Duration) (bool, error) {
	until := time.Now().Add(patience)
	for {
		// another try comes before the lease runs out
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
			until = time.Now().Add(patience) // Redis is away
		case time.Now().After(until):
			return false, l.Taken
		}
		_ = sleep.For(ctx, namePoll) // ctx is checked above
	}
}

// Renewed runs work while renew is called, at once and then again and again. An
// error of renew is the cause that ends work's context, and is returned with
// work's. In the end giveBack is called, with little time: what was renewed
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
