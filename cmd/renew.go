package cmd

import (
	"context"
	"errors"
	"time"

	"dibs/internal/sleep"
)

// whileRenewed runs work while renew is called, at once and then again and again. An error of renew is the cause that ends work's context,
// and is returned with work's. In the end giveBack is called, with little time: what was renewed expires by itself.
func whileRenewed(ctx context.Context, every time.Duration, renew, giveBack, work func(context.Context) error) error {
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
