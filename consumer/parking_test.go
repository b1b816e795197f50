package consumer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// unreadable are entries without an event, each for another reason.
var unreadable = [][]any{
	{"junk", "a\x00b", "payload", "{"},
	{"_watermill_message_uuid", "bad", "metadata", "not msgpack", "payload", "{}"},
}

func TestConsumer_UnreadableEntriesAreParkedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		add := func(values ...any) string {
			id, err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: values}).Result()
			require.NoError(t, err)
			return id
		}
		claim := func(n int) {
			add("_watermill_message_uuid", fmt.Sprint(n), "metadata", "", "payload", fmt.Sprintf(benchPayload, n, n, n+1))
		}
		claim(0)
		first := add(unreadable[0]...)
		add(unreadable[1]...)
		claim(1)
		books := &ledger{}
		startService(t, rdb, func(c *consumer.Config) { c.Handle = books.handle })
		var parked []redis.XMessage
		require.Eventually(t, func() bool {
			parked, _ = rdb.XRange(context.Background(), lua.ParkedKey(0, "ledger"), "-", "+").Result()
			pending, err := rdb.XPending(context.Background(), lua.StreamKey(0), "ledger").Result()
			return len(parked) == 2 && books.count() == 2 && err == nil && pending.Count == 0
		}, patience, time.Millisecond)
		if parked[0].Values["_dibs_id"] != first { // each is parked by itself
			parked[0], parked[1] = parked[1], parked[0]
		}
		require.Contains(t, parked[0].Values["_dibs_reason"], "uuid key is missing")
		require.Equal(t, map[string]any{
			"_dibs_id": first, "_dibs_group": "ledger", "_dibs_reason": parked[0].Values["_dibs_reason"], "_dibs_tries": "0",
			"_dibs_at": parked[0].Values["_dibs_at"], "junk": "a\x00b", "payload": "{",
		}, parked[0].Values)
		require.Equal(t, "not msgpack", parked[1].Values["metadata"])
		require.Contains(t, parked[1].Values["_dibs_reason"], "models: bad event")
	})
}

// The waits between attempts grow, other events continue, and a stop
// does not wait for the next attempt.
func TestService_WaitsLongerAndLongerAndAStopDoesNotWait(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	attempts := make(chan time.Time, 100)
	s := startService(t, rdb, func(c *consumer.Config) {
		c.Backoff = consumer.Backoff{Initial: 40 * time.Millisecond, Max: time.Hour}
		c.CloseTimeout = patience
		c.Handle = func(_ context.Context, e models.Event, _ []byte) error {
			if e.ID != claimID(0) {
				return nil
			}
			attempts <- time.Now()
			return errAway
		}
	})
	for n := range 10 {
		s.claim(t, 0, n)
	}
	var at []time.Time
	for range 6 {
		at = append(at, <-attempts)
	}
	require.Greater(t, at[5].Sub(at[4]), at[1].Sub(at[0]))
	require.Greater(t, at[5].Sub(at[4]), 300*time.Millisecond, "the fifth wait is 640 ms, give or take half")
	s.eventuallyPending(t, 1)
	begun := time.Now()
	s.stop()
	require.Less(t, time.Since(begun), 5*time.Second)
	require.EqualValues(t, 1, s.pending(t, "ledger"))
}
