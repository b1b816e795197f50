package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

// noon is when tests start, by every clock.
var noon = time.Date(2026, 3, 5, 12, 0, 0, 123e6, time.UTC)

// eachRedis runs a test on an embedded Redis
// and on a real one, each empty and its own.
func eachRedis(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, patient(connect(t, "redis://"+miniredis.RunT(t).Addr())))
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, patient(connect(t, testenv.Redis(t).URL())))
	})
}

func isReal(t *testing.T) bool { return strings.HasSuffix(t.Name(), "/real") }

// patient lets a client wait for a reply however busy the machine is.
// Tests of sums can't have a timeout as an outcome.
func patient(rdb redis.UniversalClient) redis.UniversalClient {
	rdb.(*redis.Client).Options().ReadTimeout = time.Minute
	return rdb
}

func connect(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	rdb, err := redisconn.Connect(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// bundle is a campaign in a Redis; the test sets both clocks.
type bundle struct {
	t    testing.TB
	rdb  redis.UniversalClient
	s    *lua.Scripts
	c    *models.Campaign
	meta lua.Meta
	keys lua.CampaignKeys

	redisMs, ourMs *atomic.Int64
}

// newBundle loads a campaign of 10 units without limits, changed by change.
func newBundle(t testing.TB, rdb redis.UniversalClient, change func(c *models.Campaign)) *bundle {
	t.Helper()
	b := &bundle{t: t, rdb: rdb, redisMs: new(atomic.Int64), ourMs: new(atomic.Int64)}
	b.setClock(noon)
	b.s = b.scripts()
	b.c = &models.Campaign{
		ID: testenv.UniqueID(t, "c"), Kind: models.KindCoupon, Status: models.StatusOpen, Total: 10, TimeZone: "UTC",
		Version: 1, Epoch: 1, CreatedAt: noon,
	}
	if change != nil {
		change(b.c)
	}
	var err error
	b.meta, err = b.s.MetaOf(b.c)
	require.NoError(t, err)
	b.keys = b.s.KeysOf(b.c.ID)
	loaded, err := b.s.Load(t.Context(), b.c)
	require.NoError(t, err)
	require.True(t, loaded)
	forgetLoads(t, rdb, b.keys.Stream)
	return b
}

// forgetLoads removes the entries of loads from a stream. Tests of
// other entries would count them.
func forgetLoads(t testing.TB, rdb redis.UniversalClient, stream string) {
	t.Helper()
	entries, err := rdb.XRange(t.Context(), stream, "-", "+").Result()
	require.NoError(t, err)
	left := len(entries)
	for _, entry := range entries {
		if e, err := event.Decode([]byte(fmt.Sprint(entry.Values["payload"]))); err == nil && e.IsOfLot() {
			left--
			require.NoError(t, rdb.XDel(t.Context(), stream, entry.ID).Err())
		}
	}
	if left == 0 {
		require.NoError(t, rdb.Del(t.Context(), stream).Err())
	}
}

// scripts makes Scripts on the bundle's Redis
// and clocks, as another process would.
func (b *bundle) scripts() *lua.Scripts {
	b.t.Helper()
	s, err := lua.New(b.rdb, lua.Options{
		Clock:       func() time.Time { return time.UnixMilli(b.ourMs.Load()) },
		ServerClock: b.redisMs.Load,
	})
	require.NoError(b.t, err)
	return s
}

func (b *bundle) setClock(now time.Time) {
	b.redisMs.Store(now.UnixMilli())
	b.ourMs.Store(now.UnixMilli())
}

func (b *bundle) adjust(change func(c *models.Campaign)) lua.State {
	b.t.Helper()
	change(b.c)
	b.c.Version++
	st, err := b.s.Adjust(b.t.Context(), b.c, nil)
	require.NoError(b.t, err)
	return st
}

func (b *bundle) claim(reqs ...lua.ClaimRequest) []lua.ClaimReply {
	b.t.Helper()
	replies, remaining, err := b.s.Claim(b.t.Context(), b.meta, reqs)
	require.NoError(b.t, err)
	require.Len(b.t, replies, len(reqs))
	require.GreaterOrEqual(b.t, remaining, int64(0))
	return replies
}

func (b *bundle) outcomes(reqs ...lua.ClaimRequest) []models.Outcome {
	b.t.Helper()
	return outcomesOf(b.claim(reqs...))
}

func outcomesOf(replies []lua.ClaimReply) []models.Outcome {
	outcomes := make([]models.Outcome, len(replies))
	for i, r := range replies {
		outcomes[i] = r.Outcome
	}
	return outcomes
}

func (b *bundle) state() lua.State {
	b.t.Helper()
	st, err := b.s.State(b.t.Context(), b.c.ID)
	require.NoError(b.t, err)
	return st
}

func (b *bundle) events() []event.Event {
	b.t.Helper()
	entries, err := b.rdb.XRange(b.t.Context(), b.keys.Stream, "-", "+").Result()
	require.NoError(b.t, err)
	var events []event.Event
	for _, entry := range entries {
		e, err := event.Decode([]byte(entry.Values["payload"].(string)))
		require.NoError(b.t, err)
		require.Equal(b.t, e.ID, entry.Values["_watermill_message_uuid"])
		if e.CampaignID == b.c.ID && e.Type == event.ClaimAccepted {
			events = append(events, e)
		}
	}
	return events
}

// last is the newest event of the stream.
func (b *bundle) last() event.Event {
	b.t.Helper()
	entries := b.rdb.XRevRangeN(b.t.Context(), b.keys.Stream, "+", "-", 1).Val()
	require.Len(b.t, entries, 1)
	e, err := event.Decode([]byte(entries[0].Values["payload"].(string)))
	require.NoError(b.t, err)
	return e
}

// requireBooks checks that counters and events
// agree: seq has no gaps and units add up.
func (b *bundle) requireBooks() {
	b.t.Helper()
	st := b.state()
	var units int64
	events := b.events()
	for i, e := range events {
		require.Equal(b.t, int64(i+1), e.Seq)
		units += e.Quantity
	}
	require.Equal(b.t, st.Seq, int64(len(events)))
	require.Equal(b.t, st.Taken, units)
}

func want(user string, quantity int64, key string) lua.ClaimRequest {
	return lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: user, Quantity: quantity, Key: key}
}

func wants(prefix string, n int) []lua.ClaimRequest {
	reqs := make([]lua.ClaimRequest, n)
	for i := range reqs {
		reqs[i] = want(fmt.Sprintf("%s-%d", prefix, i), 1, "")
	}
	return reqs
}

func snapshot(ctx context.Context, t testing.TB, rdb redis.UniversalClient) map[string]string {
	t.Helper()
	keys, err := rdb.Keys(ctx, "*").Result()
	require.NoError(t, err)
	all := map[string]string{}
	for _, key := range keys {
		all[key] = contents(ctx, t, rdb, key)
	}
	return all
}

func contents(ctx context.Context, t testing.TB, rdb redis.UniversalClient, key string) string {
	t.Helper()
	kind, err := rdb.Type(ctx, key).Result()
	require.NoError(t, err)
	read := map[string][]any{
		"string": {"GET"}, "list": {"LRANGE", 0, -1}, "set": {"SMEMBERS"}, "zset": {"ZRANGE", 0, -1, "WITHSCORES"}, "hash": {"HGETALL"},
		"stream": {"XRANGE", "-", "+"},
	}[kind]
	require.NotEmpty(t, read, "%s is a %s", key, kind)
	value, err := rdb.Do(ctx, slices.Insert(read, 1, any(key))...).Result()
	require.NoError(t, err)
	return fmt.Sprintf("%s %q", kind, value) // a map in the order of its keys
}
