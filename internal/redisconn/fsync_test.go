package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

func checkOf(t *testing.T, rdb redis.UniversalClient, fsync redisconn.Fsync) error {
	t.Helper()
	return redisconn.EachMaster(t.Context(), rdb, func(ctx context.Context, master *redis.Client) error {
		return redisconn.CheckFsync(ctx, master, fsync)
	})
}

func TestDurabilityThatRedisCantKeepIsRefusedByName(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		d     redisconn.Fsync
		conf  []string
		words []string
	}{
		"no file":           {d: redisconn.MustFsync, words: []string{"appendonly yes"}},
		"each second":       {d: redisconn.MustFsync, conf: []string{"appendonly yes"}, words: []string{"appendfsync always", "everysec"}},
		"not while saving":  {d: redisconn.MustFsync, conf: append([]string{"no-appendfsync-on-rewrite yes"}, fsyncing...), words: []string{"no-appendfsync-on-rewrite no"}},
		"loads half writes": {d: redisconn.MustFsync, conf: []string{"appendonly yes", "appendfsync always"}, words: []string{"aof-load-truncated no"}},
		"vouched, no file":  {d: redisconn.VouchedFsync, words: []string{"appendonly yes"}},
		"vouched, can read": {d: redisconn.VouchedFsync, conf: []string{"appendonly yes"}, words: []string{"appendfsync always"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkOf(t, connect(t, testenv.Redis(t, row.conf...).URL()), row.d)
			require.ErrorIs(t, err, redisconn.ErrFsync)
			for _, word := range row.words {
				require.ErrorContains(t, err, word)
			}
		})
	}
}

// A restarted or promoted server may have other settings.
// Otherwise claims would reach a server that does not sync.
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
			claim, partition := claiming(t, detect(t, servers.url, redisconn.MustFsync), 8, time.Minute)
			require.NoError(t, claim())
			sent := func() int64 { return connect(t, servers.url).XLen(t.Context(), lua.StreamKey(partition)).Val() }
			before := sent()
			for _, node := range servers.nodes {
				one := connect(t, "redis://"+node)
				require.NoError(t, one.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
				require.NoError(t, one.ClientKillByFilter(t.Context(), "type", "normal", "skipme", "yes").Err())
			}
			require.Eventually(t, func() bool {
				err := claim()
				require.Error(t, err)
				return errors.Is(err, redisconn.ErrFsync) && errors.Is(err, lua.ErrUnavailable)
			}, time.Minute, time.Millisecond, "but for connections that were not known to be closed")
			for _, node := range servers.nodes {
				require.NoError(t, connect(t, "redis://"+node).ConfigSet(t.Context(), "appendfsync", "always").Err())
			}
			require.NoError(t, claim())
			require.Equal(t, before+1, sent(), "what was refused was not sent")
		})
	}
}

// Managed servers forbid CONFIG, so a person must vouch for settings.
func TestSettingsThatCantBeReadMustBeVouchedFor(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, fsyncing...)
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "dibs", "on", ">secret", "~*", "&*", "+@all", "-config").Err())
	url := "redis://dibs:secret@" + server.Addr()
	err := checkOf(t, connect(t, url), redisconn.MustFsync)
	require.ErrorIs(t, err, redisconn.ErrFsync)
	for _, word := range []string{"appendfsync must be always", "no-appendfsync-on-rewrite no", "aof-load-truncated no", "fsync:vouched", "mysql"} {
		require.ErrorContains(t, err, word)
	}
	require.ErrorIs(t, detect(t, url, redisconn.MustFsync).Ping(t.Context()).Err(), redisconn.ErrFsync)
	require.NoError(t, detect(t, url, redisconn.VouchedFsync).Ping(t.Context()).Err())
	require.NoError(t, checkOf(t, connect(t, url), redisconn.VouchedFsync))
}

// One master that syncs says nothing of the others.
func TestInAClusterEveryMasterIsAsked(t *testing.T) {
	t.Parallel()
	addrs := fsyncingCluster(t, 3)
	rdb := connect(t, "redis://"+strings.Join(addrs, ","))
	for _, addr := range addrs {
		err := checkOf(t, rdb, redisconn.MustFsync)
		require.NoError(t, err)
		one := connect(t, "redis://"+addr)
		require.NoError(t, one.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
		err = checkOf(t, rdb, redisconn.MustFsync)
		require.ErrorContains(t, err, addr)
		require.NoError(t, one.ConfigSet(t.Context(), "appendfsync", "always").Err())
	}
}

// A loading server denies having an append-only file.
func TestServerThatLoadsIsNotARefusal(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t, append(slowToLoad(), fsyncing...)...).URL())
	loadAgain(t, rdb)
	for _, d := range []redisconn.Fsync{redisconn.MustFsync, redisconn.VouchedFsync} {
		err := checkOf(t, rdb, d)
		require.ErrorContains(t, err, "loads its data")
		require.NotErrorIs(t, err, redisconn.ErrFsync)
		require.True(t, redisconn.MayPass(err))
	}
	_, err := adviceOf(t, rdb)
	require.ErrorContains(t, err, "loads its data", "it cannot be known yet")
	s, err := lua.New(rdb, lua.Options{Partitions: 2, CheckServer: func(ctx context.Context, node *redis.Client) error {
		return redisconn.CheckFsync(ctx, node, redisconn.MustFsync)
	}})
	require.NoError(t, err)
	require.Len(t, s.Away(t.Context()), 2)
	require.Eventually(t, func() bool { return len(s.Away(t.Context())) == 0 }, time.Minute, 50*time.Millisecond)
	err = checkOf(t, rdb, redisconn.MustFsync)
	require.NoError(t, err)
}

// slowToLoad are settings that make Redis load its file slowly.
func slowToLoad() []string {
	return []string{"enable-debug-command local", "key-load-delay 20000", "loading-process-events-interval-bytes 1024"}
}

// loadAgain makes Redis load its append-only file, and returns once it does.
func loadAgain(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	for i := range 200 {
		require.NoError(t, rdb.Set(t.Context(), fmt.Sprint("key-", i), strings.Repeat("x", 2000), 0).Err())
	}
	// the delay applies to a file that starts with a snapshot
	require.NoError(t, rdb.BgRewriteAOF(t.Context()).Err())
	says := func(fields ...string) bool {
		info, err := redisconn.Info(t.Context(), rdb, "persistence")
		return err == nil && !slices.ContainsFunc(fields, func(field string) bool {
			name, value, _ := strings.Cut(field, ":")
			return info[name] != value
		})
	}
	require.Eventually(t, func() bool { return says("aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0") }, time.Minute, 10*time.Millisecond)
	go rdb.Do(t.Context(), "debug", "loadaof") // the client gives up before the reply
	require.Eventually(t, func() bool { return says("loading:1", "aof_enabled:0") }, time.Minute, 10*time.Millisecond)
}

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

// These users were observed with Redis 7.0: at a restart it kept
// or dropped the writes of a script that wrote twice.
func TestADefaultUserThatMayNotWriteIsAdvisedOf(t *testing.T) {
	t.Parallel()
	for user, safe := range map[string]bool{
		"on nopass ~* &* +@all": true, "on >longsecret ~* &* +@all": true,
		"off": false, "on nopass resetkeys resetchannels -@all": false,
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t, "appendonly yes", "appendfsync always", "aof-load-truncated no")
			boss := connect(t, "redis://boss:pw@"+server.Addr())
			require.NoError(t, server.Client().Do(t.Context(), "acl", "setuser", "boss", "on", ">pw", "~*", "&*", "+@all").Err())
			advice, err := adviceOf(t, boss)
			require.NoError(t, err)
			require.Empty(t, advice)
			words := []any{"acl", "setuser", "default", "reset"}
			for word := range strings.FieldsSeq(user) {
				words = append(words, word)
			}
			require.NoError(t, boss.Do(t.Context(), words...).Err())
			advice, err = adviceOf(t, boss)
			require.NoError(t, err)
			require.Equal(t, safe, advice == "", advice)
			err = checkOf(t, boss, redisconn.MustFsync)
			if safe {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, redisconn.ErrFsync)
			require.ErrorContains(t, err, "default user")
		})
	}
	advice, err := adviceOf(t, testenv.Redis(t).Client())
	require.NoError(t, err)
	require.Empty(t, advice, "there is no file to load")
}

func adviceOf(t *testing.T, rdb redis.UniversalClient) (string, error) {
	t.Helper()
	info, err := redisconn.Info(t.Context(), rdb)
	require.NoError(t, err)
	return redisconn.DefaultUserAdvice(t.Context(), rdb.(*redis.Client), info)
}
