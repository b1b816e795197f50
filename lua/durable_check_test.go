package lua_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
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
	fsync, replica := lua.Durability{Fsync: true}, lua.Durability{Replicas: 1}
	for name, row := range map[string]struct {
		d     lua.Durability
		conf  []string
		newer bool
		words []string
	}{
		"no file":                    {d: fsync, words: []string{"appendonly yes"}},
		"each second":                {d: fsync, conf: []string{"appendonly yes"}, words: []string{"appendfsync always", "everysec"}},
		"not while saving":           {d: fsync, conf: append([]string{"no-appendfsync-on-rewrite yes"}, fsyncing...), words: []string{"no-appendfsync-on-rewrite no"}},
		"loads half writes":          {d: fsync, conf: []string{"appendonly yes", "appendfsync always"}, words: []string{"aof-load-truncated no"}},
		"WAITAOF, loads half writes": {d: fsync, newer: true, conf: []string{"appendonly yes", "appendfsync always"}, words: []string{"aof-load-truncated no"}},
		"WAITAOF, no file":           {d: fsync, newer: true, words: []string{"appendonly yes"}},
		"WAITAOF, never":             {d: fsync, newer: true, conf: []string{"appendonly yes", "appendfsync no"}, words: []string{"appendfsync always"}},
		"no replica":                 {d: replica, words: []string{"replica:1 needs 1 replicas, 0 are online"}},
		"vouched, no file":           {d: lua.Durability{Fsync: true, Vouched: true}, words: []string{"appendonly yes"}},
		"vouched, can read":          {d: lua.Durability{Fsync: true, Vouched: true}, conf: []string{"appendonly yes"}, words: []string{"appendfsync always"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := testenv.Redis
			if row.newer {
				start = testenv.RedisWithWaitAOF
			}
			_, err := checkOf(t, connect(t, start(t, row.conf...).URL()), row.d)
			require.ErrorIs(t, err, lua.ErrDurability)
			for _, word := range row.words {
				require.ErrorContains(t, err, word)
			}
		})
	}
}

func TestDurabilityThatRedisKeepsIsNotRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, testenv.Redis)
	advice, err := checkOf(t, connect(t, p.primary.URL()), lua.Durability{Replicas: 1})
	require.NoError(t, err)
	require.Len(t, advice, 1)
	require.Contains(t, advice[0], "min-replicas-to-write 1")
	require.NoError(t, connect(t, p.primary.URL()).ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	for name, row := range map[string]struct {
		rdb redis.UniversalClient
		d   lua.Durability
	}{
		"fast":    {connect(t, "redis://127.0.0.1:1"), lua.Durability{}}, // not even asked
		"fsync":   {connect(t, testenv.Redis(t, fsyncing...).URL()), lua.Durability{Fsync: true}},
		"replica": {connect(t, p.primary.URL()), lua.Durability{Replicas: 1}},
	} {
		advice, err := checkOf(t, row.rdb, row.d)
		require.NoError(t, err, name)
		require.Empty(t, advice, name)
	}
}

func TestServerThatWaitsMaySyncEachSecondWithAWordOfAdvice(t *testing.T) {
	t.Parallel()
	advice, err := checkOf(t, connect(t, testenv.RedisWithWaitAOF(t, "appendonly yes", "aof-load-truncated no").URL()), lua.Durability{Fsync: true})
	require.NoError(t, err)
	require.Len(t, advice, 1)
	require.Contains(t, advice[0], "everysec")
}

// A server that is away is no reason to change a setting.
func TestServerThatIsAwayIsNotARefusal(t *testing.T) {
	t.Parallel()
	for _, d := range durabilities {
		_, err := checkOf(t, connect(t, "redis://127.0.0.1:1"), d)
		require.Error(t, err)
		require.NotErrorIs(t, err, lua.ErrDurability)
	}
}

// What may pass is no reason to change a setting either: a primary whose replica died, alone or promoted from it, and one that was demoted.
func TestReplicasThatAreMissingNowAreNotARefusal(t *testing.T) {
	t.Parallel()
	mode := lua.Durability{Replicas: 1}
	p := newPair(t, testenv.Redis)
	p.replica.Kill()
	primary := connect(t, p.primary.URL())
	require.Eventually(t, func() bool {
		_, err := checkOf(t, primary, mode)
		return err != nil && errors.Is(err, lua.ErrNotNow) && !errors.Is(err, lua.ErrDurability) && lua.MayPass(err)
	}, time.Minute, 10*time.Millisecond)
	p.replica.Start()
	promoted := connect(t, p.replica.URL())
	_, err := checkOf(t, promoted, mode)
	require.ErrorIs(t, err, lua.ErrNotNow, "it is a replica")
	require.NoError(t, promoted.SlaveOf(t.Context(), "NO", "ONE").Err())
	_, err = checkOf(t, promoted, mode)
	require.ErrorContains(t, err, "replica:1 needs 1 replicas, 0 are online")
	require.NotErrorIs(t, err, lua.ErrDurability)
	intended := connect(t, testenv.Redis(t, "min-replicas-to-write 1").URL())
	_, err = checkOf(t, intended, mode)
	require.NotErrorIs(t, err, lua.ErrDurability, "someone means it to have one")
}

// A server that loads its data says that it has no append-only file.
func TestServerThatLoadsIsNotARefusal(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t, append(slowToLoad(), fsyncing...)...).URL())
	loadAgain(t, rdb)
	for _, d := range []lua.Durability{{Fsync: true}, {Fsync: true, Vouched: true}} {
		_, err := checkOf(t, rdb, d)
		require.ErrorIs(t, err, lua.ErrNotNow)
		require.NotErrorIs(t, err, lua.ErrDurability)
		require.True(t, lua.MayPass(err))
	}
	_, err := lua.DefaultUserAdvice(t.Context(), rdb)
	require.ErrorIs(t, err, lua.ErrNotNow, "it cannot be known yet")
	s, err := lua.New(rdb, lua.Options{Partitions: 2, Durability: lua.Durability{Fsync: true}})
	require.NoError(t, err)
	require.Len(t, s.Away(t.Context()), 2)
	require.Eventually(t, func() bool { return len(s.Away(t.Context())) == 0 }, time.Minute, 50*time.Millisecond)
	_, err = checkOf(t, rdb, lua.Durability{Fsync: true})
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

// Managed servers forbid CONFIG: then someone must vouch for what can't be read, unless each claim can be checked.
func TestSettingsThatCantBeReadMustBeVouchedFor(t *testing.T) {
	t.Parallel()
	forbidden := func(server *testenv.RedisServer) redis.UniversalClient {
		require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "dibs", "on", ">secret", "~*", "&*", "+@all", "-config").Err())
		return connect(t, "redis://dibs:secret@"+server.Addr())
	}
	rdb := forbidden(testenv.Redis(t, fsyncing...))
	if !waitsForAOF(t, rdb) {
		_, err := checkOf(t, rdb, lua.Durability{Fsync: true})
		require.ErrorIs(t, err, lua.ErrDurability)
		for _, word := range []string{"appendfsync must be always", "no-appendfsync-on-rewrite no", "aof-load-truncated no", "fsync:vouched"} {
			require.ErrorContains(t, err, word)
		}
		b := newBundle(t, rdb, nil)
		_, _, err = b.durable(lua.Durability{Fsync: true}).s.Claim(t.Context(), b.meta, wants("u", 1))
		require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
		b.durable(lua.Durability{Fsync: true, Vouched: true}).claim(wants("v", 2)...)

		advice, err := checkOf(t, rdb, lua.Durability{Fsync: true, Vouched: true})
		require.NoError(t, err)
		require.Len(t, advice, 1)
		require.Contains(t, advice[0], "vouched for")
	}
	advice, err := checkOf(t, forbidden(testenv.RedisWithWaitAOF(t, fsyncing...)), lua.Durability{Fsync: true})
	require.NoError(t, err)
	require.Len(t, advice, 1)
	require.Contains(t, advice[0], "aof-load-truncated must be no")
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

// Script and witness go to the master that has the keys; one that syncs does not speak for one that doesn't.
func TestInAClusterTheWitnessIsTheMasterOfTheKeys(t *testing.T) {
	t.Parallel()
	addrs := fsyncingCluster(t, 3)
	rdb := connect(t, "redis://"+addrs[0]+","+addrs[1]+","+addrs[2])
	_, err := checkOf(t, rdb, lua.Durability{Fsync: true})
	require.NoError(t, err)
	b := newBundle(t, rdb, nil).durable(lua.Durability{Fsync: true})
	b.claim(wants("u", 3)...)
	home, err := rdb.(*redis.ClusterClient).MasterForKey(t.Context(), b.keys.State)
	require.NoError(t, err)
	for _, addr := range addrs {
		one := connect(t, "redis://"+addr)
		require.NoError(t, one.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
		_, _, err := b.s.Claim(t.Context(), b.meta, wants(addr, 1))
		if addr == home.Options().Addr && !waitsForAOF(t, one) {
			require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
		} else {
			require.NoError(t, err)
		}
		_, err = checkOf(t, rdb, lua.Durability{Fsync: true})
		if !waitsForAOF(t, one) {
			require.ErrorContains(t, err, addr, "the check asks every master")
		}
		require.NoError(t, one.ConfigSet(t.Context(), "appendfsync", "always").Err())
	}
	b.requireBooks()
}

// A client whose map is wrong is told so by the node it asks, and goes there with script and witness.
func TestInAClusterAMovedKeyIsFollowed(t *testing.T) {
	t.Parallel()
	addrs := fsyncingCluster(t, 2)
	asked := atomic.Int64{}
	wrong := redis.NewClusterClient(&redis.ClusterOptions{
		MaxRetries: -1, Protocol: 2, DisableIdentity: true, ReadTimeout: time.Second, MaintNotificationsConfig: noMaintenance(),
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			const half = clusterSlots / 2
			swap := 1
			if asked.Add(1) > 1 {
				swap = 0
			}
			return []redis.ClusterSlot{
				{Start: 0, End: half - 1, Nodes: []redis.ClusterNode{{Addr: addrs[swap]}}},
				{Start: half, End: clusterSlots - 1, Nodes: []redis.ClusterNode{{Addr: addrs[1-swap]}}},
			}, nil
		},
	})
	t.Cleanup(func() { _ = wrong.Close() })
	b := newBundle(t, connect(t, "redis://"+addrs[0]+","+addrs[1]), nil)
	right := b.rdb
	b.rdb = wrong
	b.durable(lua.Durability{Fsync: true}).claim(wants("u", 2)...)
	b.rdb = right
	b.durable(lua.Durability{Fsync: true}).requireBooks()
	require.Equal(t, int64(2), b.state().Seq)
	require.Greater(t, asked.Load(), int64(1))
}

// However eager the client, a script that waits is sent once, too.
func TestScriptThatWaitsIsNeverSentTwice(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, addr string) redis.UniversalClient{
		"single": func(t *testing.T, addr string) redis.UniversalClient {
			eager := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 3, ReadTimeout: 200 * time.Millisecond, Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noMaintenance()})
			t.Cleanup(func() { _ = eager.Close() })
			return eager
		},
		"cluster": func(t *testing.T, addr string) redis.UniversalClient { return clusterThrough(t, addr) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := fsyncingCluster(t, 1)[0]
			p := testenv.Proxy(t, addr)
			server := connect(t, "redis://"+addr)
			b := newBundle(t, start(t, p.Listen), nil).durable(lua.Durability{Fsync: true})
			require.NoError(t, b.s.Preload(t.Context()))
			b.claim(want("warm", 1, ""))
			reqs := []lua.ClaimRequest{want("u", 2, "k"), want("v", 1, "")}
			require.NoError(t, server.ConfigResetStat(t.Context()).Err())
			mute(t, p)
			failed := make(chan error, 1)
			go func() {
				_, _, err := b.s.Claim(t.Context(), b.meta, reqs)
				failed <- err
			}()
			require.ErrorIs(t, <-failed, lua.ErrOutcomeUnknown)
			require.Equal(t, 1, commandStat(t, server, "calls")) // only replies are held back, so a second would have arrived
			b.rdb = server                                       // not through the proxy, whose connections end as it is mended
			b.s = b.scripts()
			require.Equal(t, int64(4), b.state().Taken)
		})
	}
}

// replyError is what a server, or a proxy before it, answers.
type replyError string

func (a replyError) Error() string { return string(a) }
func (replyError) RedisError()     {}

func TestMayPass_OnlyWhatAPersonMustMendDoesNot(t *testing.T) {
	t.Parallel()
	for text, passes := range map[replyError]bool{
		"NOAUTH Authentication required.": false, "WRONGPASS invalid username-password pair": false, "NOPERM this user has no permissions": false,
		"ERR DB index is out of range": false, "ERR unknown command 'evalsha'": false,
		"LOADING Redis is loading the dataset in memory": true, "CLUSTERDOWN The cluster is down": true, "ERR max number of clients reached": true,
		"ERR upstream failure": true, "ERR Connection timed out": true, "upstream failure": true,
	} {
		require.Equal(t, passes, lua.MayPass(fmt.Errorf("wrapped: %w", text)), string(text))
	}
	for op, passes := range map[string]bool{"remote error": false, "dial": true} { // the former is an alert of TLS
		require.Equal(t, passes, lua.MayPass(&net.OpError{Op: op, Err: errors.New("tls: certificate required")}), op)
	}
}
