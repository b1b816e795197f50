package lua

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"dibs/models"
	"dibs/models/event"
)

// EntryID is the id of an entry of a stream.
type EntryID struct{ Ms, Seq uint64 }

// ParseEntryID parses Redis' form of an id. An empty text is the zero id.
func ParseEntryID(text string) (EntryID, error) {
	if text == "" {
		return EntryID{}, nil
	}
	msText, seqText, whole := strings.Cut(text, "-")
	if !whole {
		seqText = "0" // the embedded Redis shortens 0-0
	}
	ms, msErr := strconv.ParseUint(msText, 10, 64)
	seq, seqErr := strconv.ParseUint(seqText, 10, 64)
	if err := errors.Join(msErr, seqErr); err != nil {
		return EntryID{}, fmt.Errorf("lua: entry id %.40q: %w", text, err)
	}
	return EntryID{ms, seq}, nil
}

// String returns Redis' form of the id.
func (id EntryID) String() string {
	return strconv.FormatUint(id.Ms, 10) + "-" + strconv.FormatUint(id.Seq, 10)
}

// Less reports whether id came before o.
func (id EntryID) Less(o EntryID) bool { return id.Ms < o.Ms || id.Ms == o.Ms && id.Seq < o.Seq }

// Next returns the id right after id.
func (id EntryID) Next() EntryID {
	if id.Seq == math.MaxUint64 {
		return EntryID{Ms: id.Ms + 1}
	}
	return EntryID{Ms: id.Ms, Seq: id.Seq + 1}
}

// Age returns the time since Redis made the id, by Redis' clock.
func (id EntryID) Age(now time.Time) time.Duration {
	return max(0, now.Sub(time.UnixMilli(int64(id.Ms))))
}

// Entry is an entry of a claim stream. Its payload is unchecked.
type Entry struct {
	ID      EntryID
	Payload string // "" when the entry has none
}

// Entries reads up to most entries of a partition's
// stream, from an id on. Errors as Stream.
func (s *Scripts) Entries(ctx context.Context, partition int, from EntryID, most int) ([]Entry, error) {
	messages, err := s.rdb.XRangeN(ctx, StreamKey(partition), from.String(), "+", int64(most)).Result()
	if err != nil {
		return nil, classifyError("xrange", err)
	}
	entries := make([]Entry, len(messages))
	for i := range messages {
		entries[i].ID, err = ParseEntryID(messages[i].ID)
		if err != nil {
			return nil, err
		}
		entries[i].Payload, _ = messages[i].Values["payload"].(string)
	}
	return entries, nil
}

// PublishPartitions publishes the number of claim streams in Redis.
func (s *Scripts) PublishPartitions(ctx context.Context) error {
	if err := s.rdb.HSet(ctx, InfoKey, "partitions", s.opts.Partitions).Err(); err != nil {
		return fmt.Errorf("lua: %s: %w", InfoKey, err)
	}
	return nil
}

// trimBelow records the highest id that may be trimmed. It trims
// nothing if the entry that MySQL applied last is missing. Then Redis
// lost data, and what MySQL lacks may have any id.
//
// KEYS stream, trimmed. ARGV first id that stays, id before it, most
// entries, last applied id. Reply {trimmed entries}.
const trimBelow = `
if #redis.call('XRANGE', KEYS[1], ARGV[4], ARGV[4]) == 0 then return {0} end
local trimmed = redis.call('XTRIM', KEYS[1], 'MINID', '~', ARGV[1], 'LIMIT', ARGV[3])
if trimmed > 0 then redis.call('SET', KEYS[2], ARGV[2]) end
return {trimmed}`

// TrimBelow removes about most entries before id, in whole nodes of
// 100, and returns how many. It removes none if Redis lacks the entry
// that MySQL applied last. Errors as Stream.
func (s *Scripts) TrimBelow(ctx context.Context, partition int, id, applied EntryID, most int64) (int64, error) {
	keys := []string{StreamKey(partition), TrimmedKey(partition)}
	trimmed, _, err := s.run(ctx, "trim", keys, []any{id.String(), id.previous().String(), most, applied.String()})
	return trimmed, err
}

// previous returns the id right before id, which is not the first one.
func (id EntryID) previous() EntryID {
	if id.Seq == 0 {
		return EntryID{Ms: id.Ms - 1, Seq: math.MaxUint64}
	}
	return EntryID{Ms: id.Ms, Seq: id.Seq - 1}
}

// Bytes returns the approximate memory of a partition's stream; 0
// without one. Errors as Stream.
func (s *Scripts) Bytes(ctx context.Context, partition int) (int64, error) {
	n, err := s.rdb.MemoryUsage(ctx, StreamKey(partition)).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, classifyError("memory usage", err)
}

// Tips reads the last entry ids of claim
// streams; zero without one. Errors as Stream.
func (s *Scripts) Tips(ctx context.Context, partitions []int) (map[int]EntryID, error) {
	last := make([]*redis.XMessageSliceCmd, len(partitions))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, partition := range partitions {
			last[i] = p.XRevRangeN(ctx, StreamKey(partition), "+", "-", 1)
		}
		return nil
	})
	if err != nil {
		return nil, classifyError("xrevrange", err)
	}
	tips := make(map[int]EntryID, len(last))
	for i, entries := range last {
		if len(entries.Val()) == 0 {
			tips[partitions[i]] = EntryID{}
			continue
		}
		tips[partitions[i]], err = ParseEntryID(entries.Val()[0].ID)
		if err != nil {
			return nil, err
		}
	}
	return tips, nil
}

// Lacking returns partitions where Redis lacks the entry at MySQL's
// offset. Errors as Stream.
func (s *Scripts) Lacking(ctx context.Context, offsets map[int]event.Offset) (lacking []int, err error) {
	found := make(map[int]*redis.XMessageSliceCmd, len(offsets))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for partition, at := range offsets {
			if !at.IsStart() {
				found[partition] = p.XRangeN(ctx, StreamKey(partition), at.EntryID, at.EntryID, 1)
			}
		}
		return nil
	})
	if err != nil {
		return nil, classifyError("xrange", err)
	}
	for partition, entries := range found {
		if !IsEntry(entries.Val(), offsets[partition]) {
			lacking = append(lacking, partition)
		}
	}
	return lacking, nil
}

// IsEntry reports whether the entry found at an offset's id is the
// applied one, not a later one.
func IsEntry(found []redis.XMessage, at event.Offset) bool {
	return len(found) == 1 && EventIDOf(&found[0]) == at.EventID
}

// uuidField is watermill-redisstream's field for the id of an entry's event.
const uuidField = "_watermill_message_uuid"

// EventIDOf returns the event id of an entry. If MySQL can't store the
// id, it returns its digest.
func EventIDOf(entry *redis.XMessage) string {
	id, _ := entry.Values[uuidField].(string)
	if len(id) > models.CampaignIDLength || !utf8.ValidString(id) {
		sum := sha256.Sum256([]byte(id))
		return hex.EncodeToString(sum[:])
	}
	return id
}
