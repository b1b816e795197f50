package softstate

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// EndSession marks a session of the console as ended, for as long as its cookie
// could be used.
func (s *Store) EndSession(ctx context.Context, id string, keep time.Duration) error {
	return s.rdb.Set(ctx, endedSessionKey(id), 1, max(keep, time.Second)).Err()
}

// SessionEnded reports whether a session was marked by EndSession.
func (s *Store) SessionEnded(ctx context.Context, id string) (bool, error) {
	n, err := s.rdb.Exists(ctx, endedSessionKey(id)).Result()
	return n > 0, err
}

// UseOnce reports whether an id, such as that of a watch ticket, was not used
// before, and remembers it for a time.
func (s *Store) UseOnce(ctx context.Context, id string, keep time.Duration) (isFirst bool, err error) {
	err = s.rdb.SetArgs(ctx, "dibs:used:"+id, 1, redis.SetArgs{Mode: "NX", TTL: max(keep, time.Second)}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}
