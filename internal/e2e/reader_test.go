package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models/event"
)

// reader collects events of claims like an external program,
// relying only on what the stream promises.
type reader struct {
	mu     sync.Mutex
	events map[string]event.Event // of accepted claims, by claim id
	texts  map[string]string      // payloads
	lines  map[string]string      // events about campaigns: campaign and type, by event id
	faults []string
}

const faultsMax = 20

// take records one event. entry is its id in the stream, "" if unknown.
func (r *reader) take(entries map[string]string, entry string, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := event.Decode(payload)
	if err != nil {
		r.faultf("entry %s: %v", entry, err)
		return
	}
	if e.Type != event.ClaimAccepted {
		if e.UserID == "" || e.ClaimID == "" {
			r.lines[e.ID] = e.CampaignID + " " + string(e.Type)
		}
		return
	}
	if before, seen := r.texts[e.ID]; seen && before != string(payload) {
		r.faultf("claim %s: first %s, then %s", e.ID, before, payload)
	}
	if before, seen := entries[e.ID]; seen && before != entry {
		r.faultf("claim %s is in the stream twice: %s and %s", e.ID, before, entry)
	}
	entries[e.ID] = entry
	r.events[e.ID], r.texts[e.ID] = e, string(payload)
}

func newReader() *reader {
	return &reader{events: map[string]event.Event{}, texts: map[string]string{}, lines: map[string]string{}}
}

func (r *reader) faultf(format string, args ...any) {
	if len(r.faults) < faultsMax {
		r.faults = append(r.faults, fmt.Sprintf(format, args...))
	}
}

func (r *reader) of(campaignID string) (events map[string]event.Event, faults []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events = make(map[string]event.Event)
	for id, e := range r.events {
		if e.CampaignID == campaignID {
			events[id] = e
		}
	}
	return events, append([]string(nil), r.faults...)
}

// readAlong reads all claim streams in a group, with only
// XREADGROUP and XACK, until the test ends.
func readAlong(t testing.TB, rdb redis.UniversalClient, group string, partitions int) *reader {
	t.Helper()
	r := newReader()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for p := range partitions {
		stream := lua.StreamKey(p)
		require.NoError(t, rdb.XGroupCreateMkStream(ctx, stream, group, "0").Err())
		wg.Go(func() { r.run(ctx, rdb, stream, group) })
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return r
}

func (r *reader) run(ctx context.Context, rdb redis.UniversalClient, stream, group string) {
	entries := map[string]string{}
	from := ">"
	for ctx.Err() == nil {
		read, err := rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: group, Consumer: "one", Streams: []string{stream, from}, Count: 500, Block: 100 * time.Millisecond,
		}).Result()
		switch {
		case errors.Is(err, redis.Nil) || err == nil && len(read[0].Messages) == 0:
			from = ">"
		case err != nil: // Redis is down or empty: its last reply may be lost
			from = "0"
			_ = rdb.XGroupCreateMkStream(ctx, stream, group, "0") // it usually exists
			select {
			case <-ctx.Done():
			case <-time.After(pollEvery):
			}
		default:
			ids := make([]string, len(read[0].Messages))
			for i, m := range read[0].Messages {
				payload, _ := m.Values["payload"].(string)
				r.take(entries, m.ID, []byte(payload))
				ids[i] = m.ID
			}
			if rdb.XAck(ctx, stream, group, ids...).Err() != nil {
				from = "0"
			}
		}
	}
}
