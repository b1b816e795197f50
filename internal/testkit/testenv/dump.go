package testenv

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// dumpBatch is the number of keys per round trip.
const dumpBatch = 500

// Dump returns every key of database 0 with its serialised value
// and its expiry, if any (Unix ms). Two equal dumps mean that
// nothing was written in between, not even a new expiry.
func (r *RedisServer) Dump(ctx context.Context) map[string]string {
	r.t.Helper()
	c := newClient(r.addr)
	defer func() { _ = c.Close() }()
	all := map[string]string{}
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, "*", dumpBatch).Result()
		require.NoError(r.t, err)
		require.NoError(r.t, dumpKeys(ctx, c, keys, all))
		if next == 0 {
			return all
		}
		cursor = next
	}
}

func dumpKeys(ctx context.Context, c *redis.Client, keys []string, all map[string]string) error {
	dumps := make([]*redis.StringCmd, len(keys))
	expiries := make([]*redis.DurationCmd, len(keys))
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command holds its error
		for i, key := range keys {
			dumps[i] = p.Dump(ctx, key)
			expiries[i] = p.PExpireTime(ctx, key)
		}
		return nil
	})
	for i, key := range keys {
		value, err := dumps[i].Result()
		if err == redis.Nil { //nolint:errorlint // go-redis returns the sentinel itself
			continue // expired since the scan
		}
		if err != nil {
			return fmt.Errorf("testenv: dump %q: %w", key, err)
		}
		if at, err := expiries[i].Result(); err != nil {
			return fmt.Errorf("testenv: expiry of %q: %w", key, err)
		} else if at > 0 {
			value += fmt.Sprintf(" expires %d", at.Milliseconds())
		}
		all[key] = value
	}
	return nil
}
