package lua

import (
	"context"

	"dibs/models/event"
)

// First returns the first entry of a claim stream as an offset, or
// NoOffset. Errors as Stream.
func (s *Scripts) First(ctx context.Context, partition int) (event.Offset, error) {
	first, err := s.rdb.XRangeN(ctx, StreamKey(partition), "-", "+", 1).Result()
	if err != nil || len(first) == 0 {
		return event.NoOffset(), classifyError("xrange", err)
	}
	return event.Offset{EntryID: first[0].ID, EventID: EventIDOf(&first[0])}, nil
}
