package lua

import (
	"context"
	"time"
)

// Now is the time by Redis' clock, which is the clock of claims. Errors: ErrUnavailable, ErrOutcomeUnknown (a read: ask again).
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
