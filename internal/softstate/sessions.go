package softstate

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// EndSession marks a console session as ended, for as long as
// its cookie is valid.
func (s *Store) EndSession(ctx context.Context, id string, keep time.Duration) error {
	return s.rdb.Set(ctx, endedSessionKey(id), 1, max(keep, time.Second)).Err()
}

// SessionEnded reports whether EndSession marked a session.
func (s *Store) SessionEnded(ctx context.Context, id string) (bool, error) {
	n, err := s.rdb.Exists(ctx, endedSessionKey(id)).Result()
	return n > 0, err
}

// UseOnce reports whether an id, such as a watch ticket's, is
// used for the first time, and remembers it for a time.
func (s *Store) UseOnce(ctx context.Context, id string, keep time.Duration) (isFirst bool, err error) {
	err = s.rdb.SetArgs(ctx, "dibs:used:"+id, 1, redis.SetArgs{Mode: "NX", TTL: max(keep, time.Second)}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}
