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
