package retention_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/retention"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// unreadGone returns which group lost an entry that it has not
// acknowledged, or "". A trimmer must pass it.
func unreadGone(s *syncertest.Stream, groups ...string) string {
	s.T.Helper()
	first, _ := s.Left()
	for _, group := range groups {
		pending, err := s.Redis.XPendingExt(s.T.Context(), &redis.XPendingExtArgs{
			Stream: s.Key, Group: group, Start: "-", End: "+", Count: 100_000,
		}).Result()
		require.NoError(s.T, err)
		for _, p := range pending {
			if first < len(s.IDs) && before(p.ID, s.IDs[first]) || first == len(s.IDs) {
				return fmt.Sprintf("%s lost %s, which is pending", group, p.ID)
			}
		}
		infos, err := s.Redis.XInfoGroups(s.T.Context(), s.Key).Result()
		require.NoError(s.T, err)
		for _, g := range infos {
			for i, id := range s.IDs[:first] {
				if g.Name == group && before(g.LastDeliveredID, id) {
					return fmt.Sprintf("%s lost entry %d, which it never got", group, i)
				}
			}
		}
	}
	return ""
}

func before(a, b string) bool {
	x, _ := lua.ParseEntryID(a)
	y, _ := lua.ParseEntryID(b)
	return x.Less(y)
}

func trim(t *testing.T, trimmer *retention.Trimmer) int64 {
	t.Helper()
	n, err := trimmer.Trim(t.Context())
	require.NoError(t, err)
	return n
}

// The trimmer needs exactly these commands, on Redis 7.0, on Valkey 8
// and on the embedded Redis. The access list of docs/security.md has
// them, and those of its script.
func TestTrimmer_Commands(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) redis.UniversalClient{
		"redis":  func(t *testing.T) redis.UniversalClient { return testenv.Redis(t).Client() },
		"valkey": func(t *testing.T) redis.UniversalClient { return testenv.Valkey(t).Client() },
		"embedded": func(t *testing.T) redis.UniversalClient {
			rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			key := lua.StreamKey(0)
			var last string
			for range 1000 {
				last = rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"payload", "{}"}}).Val()
			}
			trimmer := syncertest.NewTrimmer(t, rdb, "syncer", "finance")
			commands := &testenv.Commands{}
			rdb.AddHook(commands)
			require.Zero(t, trim(t, trimmer), "it makes the groups")
			for _, group := range []string{"syncer", "finance"} {
				require.NoError(t, rdb.Do(t.Context(), "XGROUP", "DESTROY", key, group).Err())
				require.NoError(t, rdb.XGroupCreate(t.Context(), key, group, last).Err())
			}
			require.GreaterOrEqual(t, trim(t, trimmer), int64(900))
			used := slices.DeleteFunc(commands.Sent(), func(name string) bool { return name == "xgroup destroy" })
			require.Equal(t, []string{
				"eval", "evalsha", "hset", "memory usage", "time", "xgroup create", "xinfo groups", "xinfo stream", "xrange",
			}, used)
			require.Positive(t, rdb.XLen(t.Context(), key).Val())
			require.NotEmpty(t, rdb.Get(t.Context(), lua.TrimmedKey(0)).Val())
		})
	}
}

// Redis trims whole nodes of 100 entries,
// so up to 99 more than needed may stay.
func TestTrimmer_TakesWhatEveryGroupHasAcknowledged(t *testing.T) {
	t.Parallel()
	s := syncertest.NewStream(t)
	s.Add(1000)
	trimmer := retention.TrimAtOnce(syncertest.NewTrimmer(t, s.Redis, "syncer", "finance"), 100)
	require.Zero(t, trim(t, trimmer), "the groups are not there: they are made, at the beginning")
	require.Zero(t, trim(t, trimmer), "they have read nothing")
	partitions, err := s.Redis.HGet(t.Context(), lua.InfoKey, "partitions").Int()
	require.NoError(t, err)
	require.Equal(t, 1, partitions, "readers are told how many streams there are")

	s.Ack("syncer", s.Read("syncer", 1000)...)
	require.Zero(t, trim(t, trimmer), "finance has read nothing")

	slow := s.Read("finance", 500)
	s.Ack("finance", slow[:250]...)
	s.Ack("finance", slow[251:]...)
	require.Equal(t, int64(200), trim(t, trimmer), "entry 250 is pending")
	s.Ack("finance", slow[250])
	trim(t, trimmer)
	first, _ := s.Left()
	require.Equal(t, 500, first)
}

// Entries younger than Keep, by their ids, stay for a restored MySQL,
// unless the stream is too large. Entries that MySQL has not applied
// stay, and so does the last applied one.
func TestTrimmer_KeepsWhatIsYoungUnlessTheStreamIsLarge(t *testing.T) {
	t.Parallel()
	s := syncertest.NewStream(t)
	for n := range 1000 { // one a second
		id, err := s.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: s.Key, ID: fmt.Sprint(1_000_000+1000*n, "-1"), Values: []string{"payload", "{}"}}).Result()
		require.NoError(t, err)
		s.IDs = append(s.IDs, id)
	}
	cfg := syncertest.Trimming(t, s.Redis, 1, "syncer")
	applied := s.IDs[900]
	cfg.Applied = func(context.Context, int) (lua.EntryID, error) { return lua.ParseEntryID(applied) }
	left := func(keep time.Duration, bytes int64) int64 {
		cfg.Keep, cfg.KeepBytes = keep, bytes
		trimmer := retention.NewTrimmer(cfg)
		for range 20 {
			trim(t, trimmer)
		}
		return s.Redis.XLen(t.Context(), s.Key).Val()
	}
	require.EqualValues(t, 1000, left(time.Hour, 1<<30))
	n := left(650*time.Second, 1<<30) // entries 250 to 999, and those of their node
	require.Equal(t, int64(800), n)
	size := s.Redis.MemoryUsage(t.Context(), s.Key).Val()
	n = left(time.Hour, size/2)
	require.Less(t, n, int64(500))
	require.LessOrEqual(t, s.Redis.MemoryUsage(t.Context(), s.Key).Val(), size/2+size/10, "a node may be above")
	require.Equal(t, int64(100), left(0, 1), "the last node has what MySQL has applied last")
	require.Len(t, s.Redis.XRange(t.Context(), s.Key, applied, applied).Val(), 1)
}

// Creating a group registers it, as docs/finance.md
// describes for readers in any language.
func TestTrimmer_RegistersAGroupThatItFinds(t *testing.T) {
	t.Parallel()
	s := syncertest.NewStream(t)
	s.Add(1000)
	reg := prometheus.NewPedanticRegistry()
	cfg := syncertest.Trimming(t, s.Redis, 1, "syncer")
	cfg.Registerer = reg
	registry := cfg.Registry
	trimmer := retention.NewTrimmer(cfg)
	require.Zero(t, trim(t, trimmer), "the group syncer is created")
	require.NoError(t, s.Redis.XGroupCreate(t.Context(), s.Key, "audit", "0").Err())
	s.Ack("syncer", s.Read("syncer", 1000)...)
	require.Zero(t, trim(t, trimmer))
	figures := func() int {
		n, err := testutil.GatherAndCount(reg, "dibs_stream_group_backlog_entries")
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 2, figures())

	require.NoError(t, s.Redis.XGroupDestroy(t.Context(), s.Key, "audit").Err())
	require.Zero(t, trim(t, trimmer), "Redis lost the group: it is created again, at the beginning")
	require.Equal(t, s.IDs, s.Read("audit", 1000))

	require.ErrorIs(t, registry.Remove(t.Context(), "audit"), models.ErrInUse)
	require.NoError(t, s.Redis.XGroupDelConsumer(t.Context(), s.Key, "audit", "c").Err())
	require.NoError(t, registry.Remove(t.Context(), "audit"))
	require.Positive(t, trim(t, trimmer))
	require.Equal(t, 1, figures(), "those of the group that was removed are gone")
}

func TestTrimmer_ControlATrimPastAnUnreadGroupIsSeen(t *testing.T) {
	t.Parallel()
	s := syncertest.NewStream(t)
	s.Add(1000)
	trim(t, syncertest.NewTrimmer(t, s.Redis, "syncer", "finance"))
	s.Ack("syncer", s.Read("syncer", 1000)...)
	trim(t, syncertest.NewTrimmer(t, s.Redis, "syncer", "finance"))
	require.Empty(t, unreadGone(s, "syncer", "finance"))
	require.NoError(t, s.Redis.XTrimMinID(t.Context(), s.Key, s.IDs[999]).Err())
	require.Contains(t, unreadGone(s, "syncer", "finance"), "finance lost entry")
}

func TestTrimmer_TakesNothingUnreadWhileAllOfThemWork(t *testing.T) {
	t.Parallel()
	s := syncertest.NewStream(t)
	groups := []string{"syncer", "finance"}
	trim(t, syncertest.NewTrimmer(t, s.Redis, groups...))
	ctx, cancel := context.WithCancel(t.Context())
	var trimmers sync.WaitGroup
	for range 2 {
		trimmer := retention.TrimAtOnce(syncertest.NewTrimmer(t, s.Redis, groups...), 100)
		trimmers.Go(func() {
			for ctx.Err() == nil {
				_, _ = trimmer.Trim(ctx)
			}
		})
	}
	held := map[string][]string{}
	var gone string
	for round := range 30 {
		s.Add(40)
		for i, group := range groups {
			held[group] = append(held[group], s.Read(group, int64(20+20*((round+i)%2)))...)
			if (round+i)%3 == 0 { // keeps the first, acknowledges the others
				s.Ack(group, held[group][1:]...)
				held[group] = held[group][:1]
			}
			if (round+i)%7 == 0 {
				s.Ack(group, held[group]...)
				held[group] = nil
			}
		}
		if gone = unreadGone(s, groups...); gone != "" {
			break
		}
	}
	cancel()
	trimmers.Wait()
	require.Empty(t, gone)
	first, _ := s.Left()
	require.Positive(t, first, "they did trim")
}

func TestTrimmer_AStreamThatFailsDoesNotKeepTheOthers(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	require.NoError(t, rdb.Set(t.Context(), lua.StreamKey(0), "a string", 0).Err())
	trimmer := retention.NewTrimmer(syncertest.Trimming(t, rdb, 2, "syncer"))
	_, err := trimmer.Trim(t.Context())
	require.ErrorContains(t, err, lua.StreamKey(0))
	groups, err := rdb.XInfoGroups(t.Context(), lua.StreamKey(1)).Result()
	require.NoError(t, err)
	require.Len(t, groups, 1)
}
