package lua

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Append adds an event to the claim stream of a campaign, as claim.lua does; payload is its JSON. An event that is sent twice is in
// the stream twice, and readers deduplicate by its id. Errors: ErrUnavailable, ErrOutcomeUnknown.
func (s *Scripts) Append(ctx context.Context, campaignID, eventID string, payload []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: append not sent: %w", ErrUnavailable, err)
	}
	key := s.KeysOf(campaignID).Stream
	cmd := onceCmd{redis.NewCmd(ctx, "xadd", key, "*", "_watermill_message_uuid", eventID, "metadata", "", "payload", payload)}
	_ = s.rdb.Process(ctx, cmd) // the command holds the error, too
	return classifyError("append", cmd.Err())
}
