package lua

import (
	"context"
	"time"
)

// Now returns the time by Redis' clock, the clock of claims.
// Errors: ErrUnavailable, ErrOutcomeUnknown (retry).
func (s *Scripts) Now(ctx context.Context) (time.Time, error) {
	if s.opts.ServerClock != nil {
		return time.UnixMilli(s.opts.ServerClock()).UTC(), nil
	}
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return time.Time{}, classifyError("time", err)
	}
	return now.UTC().Truncate(time.Millisecond), nil
}

// nowWithin is short: callers have another clock.
const nowWithin = time.Second

// NowOrZero is Now, or zero if Redis does not answer soon.
func (s *Scripts) NowOrZero(ctx context.Context) time.Time {
	ctx, cancel := context.WithTimeout(ctx, nowWithin)
	defer cancel()
	now, _ := s.Now(ctx) // zero with an error
	return now
}
