package lua

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Append appends an event to a campaign's claim stream, as claim.lua
// does. payload is its JSON. Readers deduplicate by its id. Errors:
// ErrUnavailable, ErrOutcomeUnknown.
func (s *Scripts) Append(ctx context.Context, campaignID, eventID string, payload []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: append not sent: %w", ErrUnavailable, err)
	}
	key := s.KeysOf(campaignID).Stream
	fields := []any{"xadd", key, "*", "_watermill_message_uuid", eventID, "metadata", "", "payload", payload}
	cmd := onceCmd{redis.NewCmd(ctx, fields...)}
	_ = s.rdb.Process(ctx, cmd) // cmd has the error
	return classifyError("append", cmd.Err())
}
