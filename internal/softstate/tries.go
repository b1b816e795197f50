package softstate

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// AttemptTTL is how long a user's attempts are remembered.
const AttemptTTL = 10 * time.Second

// AddAttempts adds users' attempts at this process, and returns their
// attempts at all processes. Counts restart after AttemptTTL without
// attempts. After an error some may have been added.
func (s *Store) AddAttempts(ctx context.Context, byUser map[string]int64) (all map[string]int64, err error) {
	counts := make(map[string]*redis.IntCmd, len(byUser))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for userID, n := range byUser {
			key := "dibs:tries:" + userID
			counts[userID] = p.IncrBy(ctx, key, n)
			p.PExpire(ctx, key, AttemptTTL)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all = make(map[string]int64, len(counts))
	for userID, count := range counts {
		all[userID] = count.Val()
	}
	return all, nil
}
