package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const patience = time.Minute

// onBothAlone runs a test on its own real and
// embedded Redis, as the keys are the real ones.
func onBothAlone(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) { t.Parallel(); test(t, testenv.Redis(t).Client()) })
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, embedded(t)) })
}

func embedded(t testing.TB) redis.UniversalClient {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func quick(rdb redis.UniversalClient, group string, reg prometheus.Registerer) redisbatch.Config {
	return redisbatch.Config{
		Client: rdb, Group: group, Name: "one", Logger: quiet(), Registerer: reg, CloseTimeout: 2 * time.Second,
		BlockTime: 20 * time.Millisecond, MinIdle: 400 * time.Millisecond, ReclaimEvery: 50 * time.Millisecond,
	}
}

func metric(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	var sum float64
	for _, family := range families {
		if family.GetName() != "dibs_consumer_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// benchPayload is the JSON of the n-th claim: n, n, n+1.
const benchPayload = `{"v":1,"type":"claim.accepted","id":"0199c0de-7a3e-7bbb-8c1d-%012d","campaign_id":"spring-sale",` +
	`"user_id":"user-%07d","quantity":1,"key":"q83vEjRWeJCrze8SNFZ4kA","epoch":1,"seq":%d,"at":"2026-11-21T04:42:26.123Z"}`

func ensureGroups(ctx context.Context, rdb redis.UniversalClient, partitions int, groups ...string) error {
	for p := range partitions {
		for _, group := range groups {
			err := rdb.XGroupCreateMkStream(ctx, lua.StreamKey(p), group, "0").Err()
			if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
				return err
			}
		}
	}
	return nil
}

// unreadable are entries without an event, each for another reason.
var unreadable = [][]any{
	{"junk", "a\x00b", "payload", "{"},
	{"_watermill_message_uuid", "bad", "metadata", "not msgpack", "payload", "{}"},
}

// role is common to tests of a reader of two partitions. Its keys are
// the real ones, so each needs its own Redis.
type role struct {
	rdb redis.UniversalClient
	reg *prometheus.Registry
}

func (r *role) claim(t *testing.T, partition, n int) {
	t.Helper()
	payload := fmt.Sprintf(benchPayload, n, n, n+1)
	require.NoError(t, r.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(partition), Values: []any{
		"_watermill_message_uuid", claimID(n), "metadata", "", "payload", payload}}).Err())
}

func (r *role) pending(t *testing.T, group string) (n int64) {
	t.Helper()
	for p := range 2 {
		pending, err := r.rdb.XPending(context.Background(), lua.StreamKey(p), group).Result()
		require.NoError(t, err)
		n += pending.Count
	}
	return n
}
