package redisbatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// DropNames removes a group's names on one stream, except one, that
// have nothing pending and were idle for a time.
func DropNames(ctx context.Context, rdb redis.UniversalClient, stream, group, own string, idle time.Duration) {
	s := &subscription{cfg: &Config{Client: rdb, Group: group, Name: own}, stream: stream, log: slog.New(slog.DiscardHandler)}
	s.dropNames(ctx, idle)
}
