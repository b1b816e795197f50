package lab

import (
	"context"
	"fmt"
)

// lockPerCoupon is the foot of the batch stock article's ladder: the coupon's lock around a Redis counter and its row in
// MySQL, so that both change together.
type lockPerCoupon struct{ counter }

func lockPerCouponStrategy() Entry {
	return Entry{
		Name: "lock-per-coupon", Title: "one lock a coupon: Redis counter, MySQL row", Sound: true, DieAt: StepWritten,
		Flaw: "a coupon sells one at a time, at the pace of everything under the lock",
		New:  func(env Env) (Strategy, error) { return &lockPerCoupon{counter{env}}, nil },
	}
}

// Prepare writes the stock to both.
func (s *lockPerCoupon) Prepare(ctx context.Context) error {
	if err := s.prepareRow(ctx); err != nil {
		return err
	}
	return s.counter.Prepare(ctx)
}

// Claim sells in Redis and in MySQL under the coupon's lock.
func (s *lockPerCoupon) Claim(ctx context.Context, user string) (outcome Outcome, err error) {
	unlock, err := ownerToken(ctx, &s.counter)
	if err != nil || unlock == nil {
		return Busy, err
	}
	defer give(ctx, &err, unlock)
	outcome, err = s.sell(ctx, user)
	if err != nil || outcome != Claimed {
		return outcome, err
	}
	taken, err := takeOne(ctx, s.DB, s.Campaign.ID)
	if err == nil && !taken {
		err = fmt.Errorf("%w: redis sold what mysql does not have", ErrBooks)
	}
	return outcome, err
}
