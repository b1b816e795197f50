package lua

import (
	"context"
	"time"
)

// EndSession marks a session of the console as ended, for as long as its cookie could be used. Errors as Stream.
func (s *Scripts) EndSession(ctx context.Context, id string, keep time.Duration) error {
	return sortError("set", s.rdb.Set(ctx, endedSessionKey(id), 1, max(keep, time.Second)).Err())
}

// SessionEnded reports whether a session was marked by EndSession. Errors as Stream.
func (s *Scripts) SessionEnded(ctx context.Context, id string) (bool, error) {
	n, err := s.rdb.Exists(ctx, endedSessionKey(id)).Result()
	return n > 0, sortError("exists", err)
}
