package lua_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

func TestWhatIsNotSentIsUnavailable(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	b := newBundle(t, connect(t, server.URL()), nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.unchanged("the caller's context has ended", func() {
		_, _, err := b.s.Claim(ended, b.meta, wants("u", 1))
		require.ErrorIs(t, err, lua.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
	})
	server.Kill()
	// The first calls may use a connection that
	// died: what they sent may have been read.
	var err error
	require.Eventually(t, func() bool {
		_, _, err = b.s.Claim(t.Context(), b.meta, wants("u", 1))
		return err != nil && !strings.Contains(err.Error(), lua.ErrOutcomeUnknown.Error())
	}, time.Minute, time.Millisecond)
	require.ErrorIs(t, err, lua.ErrUnavailable)
	_, err = b.s.State(t.Context(), b.c.ID)
	require.ErrorIs(t, err, lua.ErrUnavailable)
	_, err = b.s.Load(t.Context(), b.c)
	require.ErrorIs(t, err, lua.ErrUnavailable)
	_, err = b.fence("one", lua.FenceAway)
	require.ErrorIs(t, err, lua.ErrUnavailable)
	require.NoError(t, b.rdb.Close())
	_, _, err = b.s.Claim(t.Context(), b.meta, wants("u", 1))
	require.ErrorIs(t, err, lua.ErrUnavailable)
}

// A client of go-redis that is set to retry, and one of a cluster: the
// script still runs once a call.
func TestScriptIsNeverSentTwice(t *testing.T) {
	t.Parallel()
	clients := map[string]func(t *testing.T) (server, through redis.UniversalClient, p *toxiproxy.Proxy){
		"single": func(t *testing.T) (redis.UniversalClient, redis.UniversalClient, *toxiproxy.Proxy) {
			addr := testenv.Redis(t).Addr()
			p := machine.Proxy(t, addr)
			eager := redis.NewClient(&redis.Options{Addr: p.Listen, MaxRetries: 3, ReadTimeout: time.Second, Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noMaintenance()})
			t.Cleanup(func() { _ = eager.Close() })
			return connect(t, "redis://"+addr), eager, p
		},
		"cluster": func(t *testing.T) (redis.UniversalClient, redis.UniversalClient, *toxiproxy.Proxy) {
			addr := testenv.RedisCluster(t, 1)[0]
			p := machine.Proxy(t, addr)
			eager := clusterThrough(t, p.Listen)
			return connect(t, "redis://"+addr), eager, p
		},
	}
	for name, start := range clients {
		for _, fault := range []string{"cut", "lost reply"} {
			t.Run(name+", "+fault, func(t *testing.T) {
				t.Parallel()
				server, through, p := start(t)
				b := newBundle(t, through, nil)
				require.NoError(t, b.s.Preload(t.Context()))
				reqs := []lua.ClaimRequest{want("u", 2, "k"), want("v", 1, "")}
				require.NoError(t, server.ConfigResetStat(t.Context()).Err())
				_, err := p.Toxics.AddToxicJson(strings.NewReader( // drops replies
					`{"name":"mute","type":"timeout","stream":"downstream","toxicity":1,"attributes":{"timeout":0}}`))
				require.NoError(t, err)
				failed := make(chan error, 1)
				go func() {
					_, _, err := b.s.Claim(t.Context(), b.meta, reqs)
					failed <- err
				}()
				awaitCall(t, server)
				if fault == "cut" { // after the script ran and before the reply
					p.Stop()
				}
				require.NoError(t, p.Toxics.RemoveToxic(t.Context(), "mute")) // all works again before a client could repeat it
				require.ErrorIs(t, <-failed, lua.ErrOutcomeUnknown)
				require.Equal(t, 1, scriptCalls(t, server))
				b.rdb = server
				b.s = b.scripts()
				first, again := b.claim(reqs...), b.claim(reqs...)
				for i := range reqs {
					require.True(t, first[i].Outcome.Took())
					require.Equal(t, models.OutcomeReplayed, again[i].Outcome)
					require.Equal(t, first[i].Claim, again[i].Claim)
				}
				require.Len(t, b.events(), len(reqs))
				b.requireBooks()
			})
		}
	}
}

func clusterThrough(t *testing.T, addr string) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		MaintNotificationsConfig: noMaintenance(),
		MaxRetries:               -1, ReadTimeout: time.Second,
		// no handshake, so a new connection sends the script first
		Protocol: 2, DisableIdentity: true,
		// nor does it ask for the list of commands, whose long reply a
		// changing proxy can't pass
		DisableRoutingPolicies: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// awaitCall waits until the server has run a script and the proxy has
// dropped the reply, which nothing reports. toxiproxy leaks a goroutine
// if it is changed while a reply passes.
func awaitCall(t *testing.T, server redis.UniversalClient) {
	t.Helper()
	require.Eventually(t, func() bool { return scriptCalls(t, server) > 0 }, time.Minute, time.Millisecond)
	time.Sleep(50 * time.Millisecond) //nolint:forbidigo // see above
}

// noMaintenance keeps go-redis from starting goroutines that outlive a
// closed client, see Connect.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

var evalshaCalls = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// scriptCalls counts the calls of scripts since the last reset.
func scriptCalls(t *testing.T, rdb redis.UniversalClient) (n int) {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	if found := evalshaCalls.FindStringSubmatch(info); found != nil {
		n, err = strconv.Atoi(found[1])
		require.NoError(t, err)
	}
	return n
}
