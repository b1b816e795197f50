package lua

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Positions reads the positions of lots in one round trip,
// in order. A missing lot is zero. Errors as State.
func (s *Scripts) Positions(ctx context.Context, ids []string) ([]Position, error) {
	cmds := make([]*redis.SliceCmd, len(ids))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, s.KeysOf(id).State, "epoch", "seq", "sold")
		}
		return nil
	})
	if err != nil && !isWrongType(err) {
		return nil, classifyError("hmget", err)
	}
	all := make([]Position, len(ids))
	for i, cmd := range cmds {
		var at struct {
			Epoch int64 `redis:"epoch"`
			Seq   int64 `redis:"seq"`
			Sold  int64 `redis:"sold"`
		}
		if err := cmd.Scan(&at); err == nil { // others report a damaged state
			all[i] = Position{Epoch: at.Epoch, Seq: at.Seq, Units: at.Sold}
		}
	}
	return all, nil
}

// Held returns the lots in Redis. It scans all keys, so it is for
// operators, not for a loop. Errors as State.
func (s *Scripts) Held(ctx context.Context) (ids []string, err error) {
	var mu sync.Mutex
	err = s.scanLots(ctx, func(key string) (more bool) {
		_, id, isCampaign := strings.Cut(key, stateInfix)
		if isCampaign && !strings.Contains(id, ":") { // the state; other keys have a suffix
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, id)
		}
		return true
	})
	slices.Sort(ids)
	return slices.Compact(ids), err
}

const (
	stateInfix = "}:c:"
	scanCount  = 1000 // keys of a SCAN: some 100 µs of Redis
)

// scanLots calls each for the keys of lots, from
// several goroutines, until it returns false.
func (s *Scripts) scanLots(ctx context.Context, each func(key string) (more bool)) error {
	return classifyError("scan", s.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		keys := node.Scan(ctx, 0, "dibs:{p*"+stateInfix+"*", scanCount).Iterator()
		for keys.Next(ctx) && each(keys.Val()) { //nolint:revive // each does the work
		}
		return keys.Err()
	}))
}

const listsAtOnce = 500 // lists of packets in a call

// CountClaimRecords counts the claim records of a lot. Errors as State.
func (s *Scripts) CountClaimRecords(ctx context.Context, campaignID string) (int64, error) {
	key := s.KeysOf(campaignID).Keys
	pipe := s.rdb.Pipeline()
	n := pipe.HLen(ctx, key)
	isArchived := pipe.HExists(ctx, key, namelessField)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, classifyError("hlen", err)
	}
	if isArchived.Val() {
		return n.Val() - 1, nil
	}
	return n.Val(), nil
}

// CountPackets counts the free packets of a lot,
// as claim.lua finds them. Errors as State.
func (s *Scripts) CountPackets(ctx context.Context, campaignID string) (packets int64, err error) {
	lists, err := s.rdb.ZRange(ctx, s.KeysOf(campaignID).Waves, 0, -1).Result()
	if err != nil && !isWrongType(err) {
		return 0, classifyError("zrange", err)
	}
	for chunk := range slices.Chunk(lists, listsAtOnce) {
		lengths := make([]*redis.IntCmd, len(chunk))
		// each command has its own error
		_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range chunk {
				lengths[i] = p.LLen(ctx, chunk[i])
			}
			return nil
		})
		for _, length := range lengths {
			n, err := length.Result()
			if err != nil && !isWrongType(err) {
				return 0, classifyError("llen", err)
			}
			packets += n
		}
	}
	return packets, nil
}

// isWrongType reports whether a key has another type.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
