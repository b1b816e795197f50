package lua

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Stream is the claim stream of a partition at one moment.
type Stream struct {
	Tip    EntryID // the highest id ever; zero without a stream
	First  EntryID // the oldest entry; zero if there is none or Redis does not report it
	Length int64   // entries
}

const noSuchKey = "no such key"

// Stream reads a claim stream. Errors: ErrUnavailable,
// ErrOutcomeUnknown (retry), ErrDamaged.
func (s *Scripts) Stream(ctx context.Context, partition int) (Stream, error) {
	info, err := s.rdb.XInfoStream(ctx, StreamKey(partition)).Result()
	switch {
	case err != nil && strings.Contains(err.Error(), noSuchKey):
		return Stream{}, nil
	case err != nil:
		return Stream{}, classifyError("xinfo", err)
	}
	first, firstErr := ParseEntryID(info.FirstEntry.ID)
	tip, err := ParseEntryID(info.LastGeneratedID)
	if err := errors.Join(err, firstErr); err != nil {
		return Stream{}, fmt.Errorf("%w: %s: %w", ErrDamaged, StreamKey(partition), err)
	}
	if tip.Ms == math.MaxUint64 {
		return Stream{}, fmt.Errorf("%w: %s: its last id is %s, and no claim can have one behind it."+
			" Such an id comes from an XADD by hand. When every group has read the stream, RENAME it",
			ErrDamaged, StreamKey(partition), tip)
	}
	return Stream{Tip: tip, First: first, Length: info.Length}, nil
}
