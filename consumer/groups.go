package consumer

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
)

// groupStart is where a group begins: at the first entry there is. A group made anew after Redis lost it starts there
// too, for nothing unread may be skipped and handlers deduplicate.
const groupStart = "0"

// EnsureGroups makes the groups on the claim stream of every partition, streams included, where they are missing. From
// then on nothing unread by a group is trimmed, even before its first reader comes.
func EnsureGroups(ctx context.Context, client redis.UniversalClient, partitions int, groups []string) error {
	for p := range partitions {
		for _, group := range groups {
			if err := ensureGroup(ctx, client, lua.StreamKey(p), group); err != nil {
				return err
			}
		}
	}
	return nil
}

func ensureGroup(ctx context.Context, client redis.UniversalClient, stream, group string) error {
	err := client.XGroupCreateMkStream(ctx, stream, group, groupStart).Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("consumer: creating group %s on %s: %w", group, stream, err)
	}
	return nil
}

// CheckPartitions refuses, with ErrConfig wrapped, a number of claim streams that leaves some unread: one beyond them has, or
// had, events.
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
		case err == nil && everUsed(info):
			return refuse("Partitions", fmt.Sprintf("is %d, but there are events in %s", partitions, lua.StreamKey(partitions+i)))
		case err != nil && !isNoSuchKey(err):
			return fmt.Errorf("consumer: looking for claim streams: %w", err)
		}
	}
	return nil
}

// everUsed tells whether a stream has, or had, an entry. The embedded Redis knows only of those that it has.
func everUsed(info *redis.XInfoStream) bool {
	return info.Length > 0 || info.LastGeneratedID != "" && info.LastGeneratedID != firstID
}

// isNoSuchKey tells whether Redis says that there is no stream of that name.
func isNoSuchKey(err error) bool { return strings.Contains(err.Error(), "no such key") }
