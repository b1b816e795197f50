package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

// plant has a command that makes a key of each type, and its arguments.
var plant = map[string][]any{
	"string": {"SET", "1"}, "list": {"RPUSH", "1"}, "set": {"SADD", "1"}, "zset": {"ZADD", 1, "1"}, "hash": {"HSET", "a", "1"},
	"stream": {"XADD", "*", "a", "1"},
}

// dump is DUMP of every key, or the contents if the server has no whole DUMP.
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

// A7: each key of each script holds each wrong type.
func TestWrongTypeChangesNothing(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, claimed := range []bool{false, true} {
			b, p := newBundle(t, rdb, nil), newPackets(t, rdb)
			p.push(0, "a", 1, "b", 2, "c", 3, "d", 4)
			known := want("u", 1, "k")
			list := rdb.ZRange(t.Context(), p.keys.Waves, 0, -1).Val()[0]
			scripts := map[string][]string{
				"claim": {b.keys.State, b.keys.Users, b.keys.Keys, b.keys.Stream}, "adjust": {b.keys.State, b.keys.Stream},
				"state": {b.keys.State, b.keys.Users, b.keys.Keys}, "push": {p.keys.State, p.keys.Waves, list},
				"packets": {p.keys.State, p.keys.Users, p.keys.Keys, p.keys.Stream, p.keys.Waves, list},
			}
			if claimed {
				b.claim(known, want("v", 1, ""))
				p.claim(known)
				scripts["release"] = scripts["claim"]
			}
			for script, keys := range scripts {
				for _, key := range keys {
					for kind, put := range plant {
						if kind == typeOf(key) {
							continue
						}
						aside := key + ":aside"
						existed := rdb.Rename(t.Context(), key, aside).Err() == nil
						require.NoError(t, rdb.Do(t.Context(), slices.Insert(slices.Clone(put), 1, any(key))...).Err())
						name := fmt.Sprintf("%s, %s a %s, claimed before: %t", script, key, kind, claimed)
						b.unchanged(name, func() {
							if script == "push" || script == "packets" {
								p.requireDamaged(script, key, name)
							} else {
								b.requireDamaged(script, key, name, known)
							}
						})
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

func typeOf(key string) string {
	switch last := key[strings.LastIndex(key, ":")+1:]; {
	case last == "claims":
		return "stream"
	case last == "waves":
		return "zset"
	case strings.Contains(key, ":packets:"):
		return "list"
	}
	return "hash"
}

func (p *packets) requireDamaged(script, key, name string) {
	p.t.Helper()
	if script == "packets" {
		require.Equal(p.t, []string{"damaged", "damaged"}, p.take("v", "w"), name)
		return
	}
	push := &lua.Push{Epoch: 1, After: 4, Upto: 5, Units: 1, Packets: []models.Packet{{ID: "e", Amount: 4}}}
	_, err := p.s.Push(p.t.Context(), p.c.ID, push)
	require.ErrorIs(p.t, err, lua.ErrDamaged, name)
	require.ErrorContains(p.t, err, key, name)
}

// requireDamaged calls a script that must refuse. The error names the
// key where the script's can.
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

// garbage are values that no number of a state
// has. Lua's tonumber takes most of them.
var garbage = []string{"", "nan", "inf", "-1", "1.5", "0x10", "1e3", " 5", "5\n", "five", "9999999999999999", "99999999999999999999", strings.Repeat("9", 400)}

func TestGarbageInStateChangesNothing(t *testing.T) {
	readers := map[string][]string{
		"taken": {"claim", "state", "adjust"}, "seq": {"claim", "state", "adjust"}, "epoch": {"claim", "state", "adjust"},
		"sold": {"claim", "state"}, "status": {"claim", "state"},
		"version": {"state", "adjust"}, "hold_for_ms": {"state", "adjust"}, "kind": {"state", "adjust"}, "time_zone": {"state", "adjust"},
	}
	for _, field := range []string{"total", "per_user", "per_user_per_day", "starts_at_ms", "ends_at_ms"} {
		readers[field] = []string{"claim", "state"} // adjust writes these again
	}
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		known := want("u", 1, "k")
		b.claim(known)
		whole, err := rdb.HGetAll(t.Context(), b.keys.State).Result()
		require.NoError(t, err)
		try := func(field, value string) {
			require.NoError(t, rdb.HSet(t.Context(), b.keys.State, field, value).Err())
			if value == missing {
				require.NoError(t, rdb.HDel(t.Context(), b.keys.State, field).Err())
			}
			for _, script := range readers[field] {
				name := fmt.Sprintf("%s, %s is %.30q", script, field, value)
				b.unchanged(name, func() { b.requireDamaged(script, "", name, known) })
			}
			require.NoError(t, rdb.HSet(t.Context(), b.keys.State, whole).Err())
		}
		for field := range readers {
			try(field, "1.5")
			try(field, missing)
		}
		for _, value := range garbage { // a script reads all its numbers in one way
			try("taken", value)
			try("version", value)
		}
		try("status", "Open")
		require.Equal(t, []models.Outcome{models.OutcomeReplayed}, b.outcomes(known), "whole again")
	})
}

const missing = "(missing)"

func TestGarbageInARecordStopsItsOwnerOnly(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for i, record := range []string{"", "x", "0:1;5", ";0:1", "0:-1", "0:1.5;1:1", "nan:nan", "0:1 ;1:1", "0:99999999999999999999"} {
			b := newBundle(t, rdb, nil)
			b.claim(want("u", 1, ""))
			require.NoError(t, rdb.HSet(t.Context(), b.keys.Users, "u", record).Err())
			require.Equal(t, []models.Outcome{models.OutcomeDamaged, models.OutcomeClaimed, models.OutcomeDamaged},
				b.outcomes(want("u", 1, ""), want("v", 1, ""), want("u", 1, "k")), "record %d", i)
			kept, err := rdb.HGet(t.Context(), b.keys.Users, "u").Result()
			require.NoError(t, err)
			require.Equal(t, record, kept)
		}
		for i, tail := range []string{"", "x", "1", "1:", ":1", "1:nan", "-1:5", "1:5 ", "1:5:5", "short"} {
			b := newBundle(t, rdb, nil)
			keyed, plain := want("u", 1, "k"), want("v", 1, "")
			b.claim(keyed, plain)
			records, err := rdb.HGetAll(t.Context(), b.keys.Keys).Result()
			require.NoError(t, err)
			for field, record := range records {
				head := record[:strings.LastIndex(record, fmt.Sprint(":", noon.UnixMilli()))-1]
				if tail == "short" {
					head = ""
				}
				require.NoError(t, rdb.HSet(t.Context(), b.keys.Keys, field, head+tail).Err())
			}
			require.Equal(t, []models.Outcome{models.OutcomeDamaged, models.OutcomeClaimed, models.OutcomeDamaged},
				b.outcomes(keyed, want("w", 1, ""), plain), "tail %d", i)
		}
	})
}

// Records of released claims answer retries and count users' limits.
func TestRecordsOfReleasedClaimsAreMissed(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		known := want("u", 1, "k")
		b.giveBack(b.taken(known))
		require.Zero(t, b.state().Taken)
		for _, key := range []string{b.keys.Users, b.keys.Keys} {
			require.NoError(t, rdb.Rename(t.Context(), key, key+":aside").Err())
			for _, script := range []string{"claim", "state"} {
				b.unchanged(script, func() { b.requireDamaged(script, key, script, known) })
			}
			require.NoError(t, rdb.Rename(t.Context(), key+":aside", key).Err())
		}
		require.NoError(t, rdb.Del(t.Context(), b.keys.Keys).Err())
		fenced, err := b.fence("loader", lua.FenceAway)
		require.NoError(t, err)
		require.Equal(t, lua.HeldDamaged, fenced.Held)
	})
}

// A record may be older than the newest
// limit. What it does not count is unused.
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

// No id follows one of the last possible millisecond. Only an XADD by
// hand writes such an id, and readers report it.
func TestCallsOnAFullStreamChangeNothing(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t).URL())
	b := newBundle(t, rdb, func(c *models.Campaign) { c.Total = 1000 })
	releases := []lua.Release{b.taken(want("u", 1, "k")), b.taken(want("u", 1, ""))}
	p := newPackets(t, rdb)
	p.push(0, "a", 1)
	const lastID = "18446744073709551615"
	last := &redis.XAddArgs{Stream: b.keys.Stream, ID: lastID + "-" + lastID, Values: []string{"a", "b"}}
	require.NoError(t, rdb.XAdd(t.Context(), last).Err())
	all := writes(b, p, releases)
	delete(all, "a push") // appends nothing
	delete(all, "a load") // leaves its loader's token, which expires
	for name, write := range all {
		b.unchanged(name, func() {
			err := write()
			require.ErrorIs(t, err, lua.ErrUnavailable, name)
			require.ErrorContains(t, err, "exhausted", name)
		})
	}
	_, err := b.s.Stream(t.Context(), 0)
	require.ErrorIs(t, err, lua.ErrDamaged)
	require.ErrorContains(t, err, b.keys.Stream+": its last id is "+lastID)
	require.NoError(t, rdb.Rename(t.Context(), b.keys.Stream, b.keys.Stream+":aside").Err())
	_, err = b.s.Stream(t.Context(), 0)
	require.NoError(t, err, "what the error says to do")
}
