package redisbatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
)

// Other programs read this format, so it must not change.
func TestMarshal_WritesItsDocumentedFormat(t *testing.T) {
	t.Parallel()
	require.Equal(t, "\x02\x031-2\x04\x01a\x00\x01b\x02\xff\n\x033-4\x00", string(redisbatch.Marshal([]redisbatch.Entry{
		{ID: "1-2", Fields: []string{"a", "", "b", "\xff\n"}}, {ID: "3-4"},
	})))
}

func TestUnmarshal_RefusesWhatMarshalDidNotWrite(t *testing.T) {
	t.Parallel()
	good := redisbatch.Marshal([]redisbatch.Entry{{ID: "1-2", Fields: []string{"payload", "x"}}, {ID: "1-3", Fields: []string{"a", "b", "c", "d"}}})
	for n := range good {
		_, err := redisbatch.Unmarshal(good[:n])
		require.ErrorIs(t, err, redisbatch.ErrPayload, "cut after %d bytes", n)
	}
	_, err := redisbatch.Unmarshal(append(good, 0))
	require.ErrorIs(t, err, redisbatch.ErrPayload)
}

func FuzzUnmarshal(f *testing.F) {
	for n := range 3 {
		f.Add(redisbatch.Marshal(make([]redisbatch.Entry, n)))
		f.Add(redisbatch.Marshal([]redisbatch.Entry{{ID: fmt.Sprint(n), Fields: make([]string, n)}}))
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		entries, err := redisbatch.Unmarshal(payload)
		if err != nil {
			require.ErrorIs(t, err, redisbatch.ErrPayload)
			require.Nil(t, entries)
			return
		}
		again, err := redisbatch.Unmarshal(redisbatch.Marshal(entries))
		require.NoError(t, err)
		require.Equal(t, entries, again)
	})
}

// All waiting entries arrive in one message; its payload alone has the
// contents. Each is acked by itself, and the rest comes again.
func TestBatches_AReadIsOneMessage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := newFixture(t, rdb)
		ids := f.publish(0, 20)
		cfg := f.config("a")
		cfg.ReadCount = 20
		messages := f.subscribe(cfg)
		msg := next(t, messages)
		entries, err := redisbatch.Unmarshal(msg.Payload)
		require.NoError(t, err)
		require.Len(t, entries, 20)
		for i, e := range entries {
			require.Equal(t, ids[i], e.ID)
			require.Len(t, e.Fields, 6)
			require.Equal(t, []string{fmt.Sprint(i), "", fmt.Sprint(i), ""},
				[]string{e.Field("_watermill_message_uuid"), e.Field("metadata"), e.Field("payload"), e.Field("nothing")})
		}
		redisbatch.Ack(t.Context(), 0) // nothing: not of a message
		require.EqualValues(t, 20, f.pending())
		for i := range 20 {
			if i != 3 && i != 11 {
				redisbatch.Ack(msg.Context(), i)
				redisbatch.Ack(msg.Context(), i)
			}
		}
		require.Eventually(t, func() bool { return f.pending() == 2 }, patience, time.Millisecond)
		msg.Nack()
		one, other := next(t, messages), next(t, messages)
		require.ElementsMatch(t, []string{"3", "11"}, append(namesOf(one), namesOf(other)...), "each comes again alone")
		one.Ack()
		other.Ack()
		f.eventuallyNonePending()
		none(t, messages, 3*cfg.NackDelay)
	})
}
