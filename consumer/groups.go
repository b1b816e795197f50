package consumer

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
)

// groupStart is where a group begins: at the first entry there is. A group that Redis lost is created there as well, because no
// unread entry may be skipped, and handlers deduplicate.
const groupStart = "0"

// ensureGroup creates a group that is missing, and its stream.
func ensureGroup(ctx context.Context, client redis.UniversalClient, stream, group string) error {
	err := client.XGroupCreateMkStream(ctx, stream, group, groupStart).Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("consumer: creating group %s on %s: %w", group, stream, err)
	}
	return nil
}

// CheckPartitions refuses, with ErrConfig wrapped, a number of claim streams that leaves events unread: a stream beyond them has, or
// had, some.
func CheckPartitions(ctx context.Context, client redis.UniversalClient, partitions int) error {
	streams := make([]*redis.XInfoStreamCmd, 0, lua.PartitionsMax)
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := partitions; n < lua.PartitionsMax; n++ {
			streams = append(streams, p.XInfoStream(ctx, lua.StreamKey(n)))
		}
		return nil
	})
	if err != nil && !isNoSuchKey(err) {
		return fmt.Errorf("consumer: looking for claim streams: %w", err)
	}
	for i, stream := range streams {
		info, err := stream.Result()
		switch {
		case err == nil && wasUsed(info):
			return refuse("Partitions", fmt.Sprintf("is %d, but there are events in %s", partitions, lua.StreamKey(partitions+i)))
		case err != nil && !isNoSuchKey(err):
			return fmt.Errorf("consumer: looking for claim streams: %w", err)
		}
	}
	return nil
}

// wasUsed reports whether a stream has, or had, an entry. The embedded Redis knows only of those that it has.
func wasUsed(info *redis.XInfoStream) bool {
	return info.Length > 0 || info.LastGeneratedID != "" && info.LastGeneratedID != firstID
}

// isNoSuchKey reports whether Redis says that there is no stream of that name.
func isNoSuchKey(err error) bool { return strings.Contains(err.Error(), "no such key") }
