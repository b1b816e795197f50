package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// plant puts a value of each type where a key is.
var plant = map[string]func(ctx context.Context, rdb redis.UniversalClient, key string) error{
	"string": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rdb.Set(ctx, key, "1", 0).Err()
	},
	"list": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rdb.RPush(ctx, key, "1").Err()
	},
	"set": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rdb.SAdd(ctx, key, "1").Err()
	},
	"zset": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rdb.ZAdd(ctx, key, redis.Z{Score: 1, Member: "1"}).Err()
	},
	"hash": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rdb.HSet(ctx, key, "a", "1").Err()
	},
	"stream": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rdb.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"a", "1"}}).Err()
	},
}

// dump is DUMP of every key; where the server has no whole DUMP, their contents.
func dump(t testing.TB, rdb redis.UniversalClient) map[string]string {
	t.Helper()
	all := snapshot(t.Context(), t, rdb)
	for key := range all {
		if raw, err := rdb.Dump(t.Context(), key).Result(); err == nil {
			all[key] = raw
		}
	}
	return all
}

// A7: each key of each script in turn holds each wrong type.
func TestWrongTypeChangesNothing(t *testing.T) {
	keysOf := map[string]func(k lua.CampaignKeys) []string{
		"claim":  func(k lua.CampaignKeys) []string { return []string{k.State, k.Users, k.Keys, k.Stream} },
		"adjust": func(k lua.CampaignKeys) []string { return []string{k.State, k.Stream} },
		"state":  func(k lua.CampaignKeys) []string { return []string{k.State, k.Users, k.Keys} },

		"release": func(k lua.CampaignKeys) []string { return []string{k.State, k.Users, k.Keys, k.Stream} },
	}
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, claimed := range []bool{false, true} {
			for script, keys := range keysOf {
				b := newBundle(t, rdb, nil)
				known := want("u", 1, "k")
				if claimed {
					b.claim(known, want("v", 1, ""))
				}
				if script == "release" && !claimed {
					continue // there is no claim to release
				}
				for i, key := range keys(b.keys) {
					for kind, put := range plant {
						if kind == "stream" && key == b.keys.Stream || kind == "hash" && key != b.keys.Stream ||
							kind == "hash" && key == b.keys.State {
							continue // the right type
						}
						aside := key + ":aside"
						existed := rdb.Rename(t.Context(), key, aside).Err() == nil
						require.NoError(t, put(t.Context(), rdb, key))
						before := dump(t, rdb)
						name := fmt.Sprintf("%s, key %d a %s, claimed before: %t", script, i+1, kind, claimed)
						b.requireDamaged(script, key, name, known)
						require.Equal(t, before, dump(t, rdb), name)
						require.NoError(t, rdb.Del(t.Context(), key).Err())
						if existed {
							require.NoError(t, rdb.Rename(t.Context(), aside, key).Err())
						}
					}
				}
			}
		}
	})
}

// requireDamaged calls a script and wants its refusal, naming the key where the script's error can.
func (b *bundle) requireDamaged(script, key, name string, known lua.ClaimRequest) {
	b.t.Helper()
	var err error
	switch script {
	case "claim":
		require.Equal(b.t, []models.Outcome{models.OutcomeDamaged, models.OutcomeDamaged, models.OutcomeDamaged},
			b.outcomes(known, want("u", 1, ""), want("w", 2, "x")), name)
		return
	case "adjust":
		c := *b.c
		c.Version++
		_, err = b.s.Adjust(b.t.Context(), &c, nil)
	case "state":
		_, err = b.s.State(b.t.Context(), b.c.ID)
	case "release":
		_, err = b.s.Release(b.t.Context(), b.c, []lua.Release{b.released(known, 1, noon)})
	}
	require.ErrorIs(b.t, err, lua.ErrDamaged, name)
	require.ErrorContains(b.t, err, key, name)
}

// garbage is what no number of a state is. Lua's tonumber takes most of it.
var garbage = []string{"", "nan", "inf", "-1", "1.5", "0x10", "1e3", " 5", "5\n", "five", "9999999999999999", "99999999999999999999", strings.Repeat("9", 400)}

func TestGarbageInStateChangesNothing(t *testing.T) {
	counts := []string{"taken", "seq", "epoch"}
	definition := []string{"total", "per_user", "per_user_per_day", "starts_at_ms", "ends_at_ms"}
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		known := want("u", 1, "k")
		b.claim(known)
		whole, err := rdb.HGetAll(t.Context(), b.keys.State).Result()
		require.NoError(t, err)
		try := func(field, value string, scripts ...string) {
			require.NoError(t, rdb.HSet(t.Context(), b.keys.State, field, value).Err())
			if value == missing {
				require.NoError(t, rdb.HDel(t.Context(), b.keys.State, field).Err())
			}
			for _, script := range scripts {
				before := dump(t, rdb)
				name := fmt.Sprintf("%s, %s is %.30q", script, field, value)
				b.requireDamaged(script, "", name, known)
				require.Equal(t, before, dump(t, rdb), name)
			}
			require.NoError(t, rdb.HSet(t.Context(), b.keys.State, whole).Err())
		}
		for _, value := range append(garbage, missing) {
			for _, field := range counts {
				try(field, value, "claim", "state", "adjust")
			}
			for _, field := range definition { // adjust writes these again
				try(field, value, "claim", "state")
			}
			try("version", value, "state", "adjust")
			try("sold", value, "claim", "state")
			try("status", value, "claim", "state")
			try("hold_for_ms", value, "state", "adjust")
			try("kind", value, "state", "adjust")
			try("time_zone", value, "state", "adjust")
		}
		try("status", "Open", "claim", "state")
		require.Equal(t, []models.Outcome{models.OutcomeReplayed}, b.outcomes(known), "whole again")
	})
}

const missing = "(missing)"

// A damaged record stops those who need it and no one else in the call.
func TestGarbageInARecordStopsItsOwnerOnly(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for i, record := range []string{"", "x", "0:1;", "0:1;5", ";0:1", "0:-1", "0:1.5;1:1", "nan:nan", "0:1 ;1:1", "0:99999999999999999999", strings.Repeat("9", 400) + ":1"} {
			b := newBundle(t, rdb, nil)
			b.claim(want("u", 1, ""))
			require.NoError(t, rdb.HSet(t.Context(), b.keys.Users, "u", record).Err())
			require.Equal(t, []models.Outcome{models.OutcomeDamaged, models.OutcomeClaimed, models.OutcomeDamaged},
				b.outcomes(want("u", 1, ""), want("v", 1, ""), want("u", 1, "k")), "record %d", i)
			kept, err := rdb.HGet(t.Context(), b.keys.Users, "u").Result()
			require.NoError(t, err)
			require.Equal(t, record, kept)
		}
		for i, tail := range []string{"", "x", "1", "1:", ":1", "1:nan", "-1:5", "1:5 ", "1:5:5"} {
			b := newBundle(t, rdb, nil)
			keyed, plain := want("u", 1, "k"), want("v", 1, "")
			b.claim(keyed, plain)
			records, err := rdb.HGetAll(t.Context(), b.keys.Keys).Result()
			require.NoError(t, err)
			for field, record := range records {
				head := record[:strings.LastIndex(record, fmt.Sprint(":", noon.UnixMilli()))-1]
				require.NoError(t, rdb.HSet(t.Context(), b.keys.Keys, field, head+tail).Err())
			}
			require.Equal(t, []models.Outcome{models.OutcomeDamaged, models.OutcomeClaimed, models.OutcomeDamaged},
				b.outcomes(keyed, want("w", 1, ""), plain), "tail %d", i)
		}
		b := newBundle(t, rdb, nil)
		keyed := want("u", 1, "k")
		b.claim(keyed)
		fields, err := rdb.HKeys(t.Context(), b.keys.Keys).Result()
		require.NoError(t, err)
		require.NoError(t, rdb.HSet(t.Context(), b.keys.Keys, fields[0], "short").Err())
		require.Equal(t, []models.Outcome{models.OutcomeDamaged}, b.outcomes(keyed))
	})
}

// A record may be older than the newest limit: what it does not count is not used yet.
func TestRecordOfFewerLimitsIsRead(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) {
			c.PerUser = 2
			c.Limits = models.Limits{{By: models.ByUser, Per: models.PerHour, Max: 1, Added: 2}}
		})
		require.NoError(t, rdb.HSet(t.Context(), b.keys.Users, "u", "0:0;20517:0;h1.9:1").Err())
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeLimit}, b.outcomes(want("u", 1, ""), want("u", 1, "")))
		b.setClock(noon.Add(time.Hour))
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserLimit}, b.outcomes(want("u", 1, ""), want("u", 1, "")))
	})
}

// No id follows one of the last millisecond there is. Only an XADD by hand writes such an id, and who reads the stream says so.
func TestStreamOutOfIDsIsDamaged(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.fillStream("5")
		_, err := b.s.Stream(t.Context(), 0)
		require.ErrorIs(t, err, lua.ErrDamaged)
		require.ErrorContains(t, err, b.keys.Stream+": its last id is "+lastID+"-5")
		require.NoError(t, rdb.Rename(t.Context(), b.keys.Stream, b.keys.Stream+":aside").Err())
		_, err = b.s.Stream(t.Context(), 0)
		require.NoError(t, err, "what the error says to do")
	})
}

// Redis itself refuses the first XADD of a call, before anything was written.
func TestCallsOnAFullStreamChangeNothing(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t).URL())
	b := newBundle(t, rdb, func(c *models.Campaign) { c.Total = 1000 })
	one, two := b.taken(want("u", 1, "k")), b.taken(want("u", 1, ""))
	b.fillStream(lastID)
	lowered := *b.c
	lowered.Version, lowered.Total, lowered.LowStockAt = 2, 0, 5 // crosses both lines
	for name, call := range map[string]func() error{
		"a claim":    func() error { _, _, err := b.s.Claim(t.Context(), b.meta, wants("v", 1)); return err },
		"ten claims": func() error { _, _, err := b.s.Claim(t.Context(), b.meta, wants("v", 10)); return err },
		"releases":   func() error { _, err := b.s.Release(t.Context(), b.c, []lua.Release{one, two}); return err },
		"a change":   func() error { _, err := b.s.Adjust(t.Context(), &lowered, nil); return err },
	} {
		b.unchanged(name, func() {
			err := call()
			require.ErrorIs(t, err, lua.ErrUnavailable, name)
			require.ErrorContains(t, err, "exhausted", name)
		})
	}
}

const lastID = "18446744073709551615"

// fillStream has the stream stand at the given id of the last millisecond there is.
func (b *bundle) fillStream(last string) {
	b.t.Helper()
	entry := &redis.XAddArgs{Stream: b.keys.Stream, ID: lastID + "-" + last, Values: []string{"a", "b"}}
	require.NoError(b.t, b.rdb.XAdd(b.t.Context(), entry).Err())
}

func TestStreamAheadOfTheClockIsFine(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: b.keys.Stream, ID: "9999999999999-1", Values: map[string]any{
			"_watermill_message_uuid": "x", "payload": `{"v":1,"type":"other","id":"x","campaign_id":"other","at":"2026-01-01T00:00:00Z"}`,
		}}).Err()
		require.NoError(t, err)
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeClaimed}, b.outcomes(wants("u", 2)...))
		require.Len(t, b.events(), 2)
	})
}

// Control: dump tells a change in any of the keys.
func TestDumpTellsAChange(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.claim(want("u", 1, ""))
		before := dump(t, rdb)
		delete(before, b.keys.Signals) // it changes when data is lost
		require.Len(t, before, 4)
		b.claim(want("u", 1, ""))
		after := dump(t, rdb)
		for key := range before {
			require.NotEqual(t, before[key], after[key], key)
		}
	})
}
