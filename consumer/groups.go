package consumer

import (
	"context"
	"fmt"

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
