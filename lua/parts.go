package lua

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Consumer is a reader of a group of a partition's stream.
type Consumer struct {
	Name    string
	Pending int64         // entries that it was handed and has not acknowledged
	Idle    time.Duration // since it last received an entry; before Redis 7.2 an empty read does not count
	Holds   bool          // it holds the lease of its name, as each running consumer of Dibs does
}

// Consumers reads the readers of a group. There are none where there is no group. Errors as Stream.
func (s *Scripts) Consumers(ctx context.Context, partition int, group string) ([]Consumer, error) {
	infos, err := s.rdb.XInfoConsumers(ctx, StreamKey(partition), group).Result()
	if redis.HasErrorPrefix(err, "NOGROUP") || err != nil && strings.Contains(err.Error(), noSuchKey) {
		return nil, nil
	}
	if err != nil {
		return nil, classifyError("xinfo", err)
	}
	consumers := make([]Consumer, len(infos))
	leases := make([]*redis.IntCmd, len(infos))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range infos {
			leases[i] = p.Exists(ctx, consumerKey(group, infos[i].Name))
		}
		return nil
	})
	for i := range infos {
		consumers[i] = Consumer{Name: infos[i].Name, Pending: infos[i].Pending, Idle: infos[i].Idle, Holds: leases[i].Val() == 1}
	}
	return consumers, classifyError("exists", err)
}

// Health is how a Redis is.
type Health struct {
	Took       time.Duration // of a round trip
	UsedBytes  int64         // memory; 0: the server does not say
	LimitBytes int64         // maxmemory; 0: none, or the server does not say
}

// Health asks Redis how it is; of a cluster, one of its servers. Errors as State.
func (s *Scripts) Health(ctx context.Context) (Health, error) {
	start := time.Now()
	if err := s.rdb.Ping(ctx).Err(); err != nil {
		return Health{}, classifyError("ping", err)
	}
	h := Health{Took: time.Since(start)}
	info, err := Info(ctx, s.rdb, "memory")
	if err != nil {
		return h, nil //nolint:nilerr // the embedded Redis and some services do not say
	}
	h.UsedBytes, _ = strconv.ParseInt(info["used_memory"], 10, 64) // 0 where it is not there
	h.LimitBytes, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
	return h, nil
}
