package lua_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

func checkOf(t *testing.T, rdb redis.UniversalClient, d lua.Durability) (advice []string, err error) {
	t.Helper()
	s, err := lua.New(rdb, lua.Options{Durability: d})
	require.NoError(t, err)
	return s.CheckDurability(t.Context())
}

func TestDurabilityThatRedisCantKeepIsRefusedByName(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		d     lua.Durability
		conf  []string
		words []string
	}{
		"no file":           {d: lua.Fsync, words: []string{"appendonly yes"}},
		"each second":       {d: lua.Fsync, conf: []string{"appendonly yes"}, words: []string{"appendfsync always", "everysec"}},
		"not while saving":  {d: lua.Fsync, conf: append([]string{"no-appendfsync-on-rewrite yes"}, fsyncing...), words: []string{"no-appendfsync-on-rewrite no"}},
		"loads half writes": {d: lua.Fsync, conf: []string{"appendonly yes", "appendfsync always"}, words: []string{"aof-load-truncated no"}},
		"vouched, no file":  {d: lua.Vouched, words: []string{"appendonly yes"}},
		"vouched, can read": {d: lua.Vouched, conf: []string{"appendonly yes"}, words: []string{"appendfsync always"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := checkOf(t, connect(t, testenv.Redis(t, row.conf...).URL()), row.d)
			require.ErrorIs(t, err, lua.ErrDurability)
			for _, word := range row.words {
				require.ErrorContains(t, err, word)
			}
		})
	}
}

func TestDurabilityThatRedisKeepsIsNotRefused(t *testing.T) {
	t.Parallel()
	for d, url := range map[lua.Durability]string{
		lua.Fast: "redis://127.0.0.1:1", lua.MySQL: "redis://127.0.0.1:1", // not even asked
		lua.Fsync: testenv.Redis(t, fsyncing...).URL(),
	} {
		advice, err := checkOf(t, connect(t, url), d)
		require.NoError(t, err, d)
		require.Empty(t, advice, d)
	}
}

// Each new connection is checked: the server may have been started again with another setting, and a failover leads to another server.
// What is refused was not sent.
func TestConnectionsToARedisThatDoesNotSyncAreRefused(t *testing.T) {
	t.Parallel()
	primary := testenv.Redis(t, append([]string{"repl-diskless-sync-delay 0"}, fsyncing...)...)
	sentinels := testenv.Sentinels(t, primary, 0, time.Minute)
	addrs := fsyncingCluster(t, 2)
	for name, servers := range map[string]struct {
		url   string
		nodes []string
	}{
		"alone":     {"", nil},
		"Sentinels": {sentinels.URL(), []string{primary.Addr()}},
		"cluster":   {"redis://" + addrs[0] + "," + addrs[1], addrs},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if servers.url == "" {
				server := testenv.Redis(t, fsyncing...)
				servers.url = server.URL()
				servers.nodes = []string{server.Addr()}
			}
			b := newBundle(t, detect(t, servers.url, lua.Fsync), nil)
			b.claim(wants("u", 2)...)
			for _, node := range servers.nodes {
				one := connect(t, "redis://"+node)
				require.NoError(t, one.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
				require.NoError(t, one.ClientKillByFilter(t.Context(), "type", "normal", "skipme", "yes").Err())
			}
			require.Eventually(t, func() bool {
				_, _, err := b.s.Claim(t.Context(), b.meta, wants("v", 1))
				require.Error(t, err)
				return errors.Is(err, lua.ErrDurability) && errors.Is(err, lua.ErrUnavailable)
			}, time.Minute, time.Millisecond, "but for connections that were not known to be closed")
			for _, node := range servers.nodes {
				require.NoError(t, connect(t, "redis://"+node).ConfigSet(t.Context(), "appendfsync", "always").Err())
			}
			b.claim(wants("w", 1)...)
			require.Equal(t, int64(3), b.state().Seq, "what was refused was not sent")
			b.rdb = connect(t, servers.url)
			b.s = b.scripts()
			b.requireBooks()
		})
	}
}

// Managed servers forbid CONFIG: then someone must vouch for what can't be read.
func TestSettingsThatCantBeReadMustBeVouchedFor(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, fsyncing...)
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "dibs", "on", ">secret", "~*", "&*", "+@all", "-config").Err())
	url := "redis://dibs:secret@" + server.Addr()
	_, err := checkOf(t, connect(t, url), lua.Fsync)
	require.ErrorIs(t, err, lua.ErrDurability)
	for _, word := range []string{"appendfsync must be always", "no-appendfsync-on-rewrite no", "aof-load-truncated no", "fsync:vouched", "mysql"} {
		require.ErrorContains(t, err, word)
	}
	require.ErrorIs(t, detect(t, url, lua.Fsync).Ping(t.Context()).Err(), lua.ErrDurability)
	require.NoError(t, detect(t, url, lua.Vouched).Ping(t.Context()).Err())
	advice, err := checkOf(t, connect(t, url), lua.Vouched)
	require.NoError(t, err)
	require.Len(t, advice, 1)
	require.Contains(t, advice[0], "vouched for")
}

// One master that syncs does not speak for one that doesn't.
func TestInAClusterEveryMasterIsAsked(t *testing.T) {
	t.Parallel()
	addrs := fsyncingCluster(t, 3)
	rdb := connect(t, "redis://"+strings.Join(addrs, ","))
	for _, addr := range addrs {
		_, err := checkOf(t, rdb, lua.Fsync)
		require.NoError(t, err)
		one := connect(t, "redis://"+addr)
		require.NoError(t, one.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
		_, err = checkOf(t, rdb, lua.Fsync)
		require.ErrorContains(t, err, addr)
		require.NoError(t, one.ConfigSet(t.Context(), "appendfsync", "always").Err())
	}
}

// A server that is away is no reason to change a setting.
func TestServerThatIsAwayIsNotARefusal(t *testing.T) {
	t.Parallel()
	_, err := checkOf(t, connect(t, "redis://127.0.0.1:1"), lua.Fsync)
	require.Error(t, err)
	require.NotErrorIs(t, err, lua.ErrDurability)
}

// A server that loads its data says that it has no append-only file.
func TestServerThatLoadsIsNotARefusal(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t, append(slowToLoad(), fsyncing...)...).URL())
	loadAgain(t, rdb)
	for _, d := range []lua.Durability{lua.Fsync, lua.Vouched} {
		_, err := checkOf(t, rdb, d)
		require.ErrorIs(t, err, lua.ErrNotNow)
		require.NotErrorIs(t, err, lua.ErrDurability)
		require.True(t, lua.MayPass(err))
	}
	_, err := lua.DefaultUserAdvice(t.Context(), rdb)
	require.ErrorIs(t, err, lua.ErrNotNow, "it cannot be known yet")
	s, err := lua.New(rdb, lua.Options{Partitions: 2, Durability: lua.Fsync})
	require.NoError(t, err)
	require.Len(t, s.Away(t.Context()), 2)
	require.Eventually(t, func() bool { return len(s.Away(t.Context())) == 0 }, time.Minute, 50*time.Millisecond)
	_, err = checkOf(t, rdb, lua.Fsync)
	require.NoError(t, err)
}

// slowToLoad are settings of a Redis that takes long to load its file.
func slowToLoad() []string {
	return []string{"enable-debug-command local", "key-load-delay 20000", "loading-process-events-interval-bytes 1024"}
}

// loadAgain has a Redis load its append-only file, and returns once it does.
func loadAgain(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	for i := range 200 {
		require.NoError(t, rdb.Set(t.Context(), fmt.Sprint("key-", i), strings.Repeat("x", 2000), 0).Err())
	}
	require.NoError(t, rdb.BgRewriteAOF(t.Context()).Err()) // the delay is of a file that begins with a snapshot
	says := func(fields ...string) bool {
		info, err := lua.Info(t.Context(), rdb, "persistence")
		return err == nil && !slices.ContainsFunc(fields, func(field string) bool {
			name, value, _ := strings.Cut(field, ":")
			return info[name] != value
		})
	}
	require.Eventually(t, func() bool { return says("aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0") }, time.Minute, 10*time.Millisecond)
	go rdb.Do(t.Context(), "debug", "loadaof") // the client gives up before it answers
	require.Eventually(t, func() bool { return says("loading:1", "aof_enabled:0") }, time.Minute, 10*time.Millisecond)
}

// fsyncingCluster is a cluster whose masters sync.
func fsyncingCluster(t *testing.T, masters int) (addrs []string) {
	t.Helper()
	addrs = testenv.RedisCluster(t, masters)
	for _, addr := range addrs {
		one := connect(t, "redis://"+addr)
		require.NoError(t, one.ConfigSet(t.Context(), "appendfsync", "always").Err())
		require.NoError(t, one.ConfigSet(t.Context(), "aof-load-truncated", "no").Err())
		require.NoError(t, one.ConfigSet(t.Context(), "appendonly", "yes").Err())
	}
	return addrs
}
