package lua_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// crash is a rush that goes on while Redis dies, and its answers.
type crash struct {
	b    *bundle
	told atomic.Int64 // claims

	mu      sync.Mutex
	yes     []claimed
	unknown int // calls

	stop context.CancelFunc
	wg   sync.WaitGroup
}

type claimed struct {
	req   lua.ClaimRequest
	claim models.Claim
}

const crashStock = 100_000_000

// startCrash lets some callers claim until stop. Each repeats a call
// with the same ids until its outcome is known.
func startCrash(t *testing.T, rdb redis.UniversalClient) *crash {
	t.Helper()
	c := &crash{}
	c.b = newBundle(t, rdb, func(c *models.Campaign) { c.Total = crashStock })
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	c.stop = func() { stop(); c.wg.Wait() }
	t.Cleanup(c.stop)
	for caller := range 8 {
		c.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.ask(ctx, wants(fmt.Sprintf("caller%d-%d", caller, n), 1+n%5))
			}
		})
	}
	return c
}

func (c *crash) ask(ctx context.Context, reqs []lua.ClaimRequest) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
		replies, _, err := c.b.s.Claim(call, c.b.meta, reqs)
		cancel()
		c.mu.Lock()
		if errors.Is(err, lua.ErrOutcomeUnknown) {
			c.unknown++
		}
		for i, r := range replies {
			if r.Outcome.Took() {
				c.yes = append(c.yes, claimed{reqs[i], r.Claim})
				c.told.Add(1)
			}
		}
		c.mu.Unlock()
		if err == nil {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (c *crash) more(t *testing.T, claims int64) {
	t.Helper()
	from := c.told.Load()
	require.Eventually(t, func() bool { return c.told.Load() >= from+claims }, time.Minute, time.Millisecond)
}

// lost repeats each answered claim, and counts those whose answer differs.
func (c *crash) lost(t *testing.T, rdb redis.UniversalClient) (lost int) {
	t.Helper()
	s, err := lua.New(rdb, lua.Options{Clock: func() time.Time { return time.UnixMilli(c.b.ourMs.Load()) }, ServerClock: c.b.redisMs.Load})
	require.NoError(t, err)
	_, err = s.State(t.Context(), c.b.c.ID)
	if errors.Is(err, lua.ErrAbsent) {
		return len(c.yes)
	}
	require.NoError(t, err)
	for _, yes := range c.yes {
		req := yes.req
		claim := yes.claim
		replies, _, err := s.Claim(t.Context(), c.b.meta, []lua.ClaimRequest{req})
		require.NoError(t, err)
		if replies[0].Outcome != models.OutcomeReplayed || replies[0].Claim != claim {
			lost++
		}
	}
	return lost
}

// killAndStart kills Redis repeatedly during
// a rush, and starts it on the same folder.
func (c *crash) killAndStart(t *testing.T, server *testenv.RedisServer) {
	t.Helper()
	kills, repairs := testenv.Pick(5, 50), 0
	for range kills {
		c.more(t, 50)
		server.Kill()
		repairs += server.StartRepaired()
	}
	c.more(t, 50)
	c.stop()
	t.Logf("%d kills, %d files repaired, %d claims told, %d calls of unknown outcome", kills, repairs, len(c.yes), c.unknown)
}

// I2: with the settings that fsync requires,
// kill -9 of Redis loses no answered claim.
func TestClaimsToldWithFsyncOutliveRedisKilled(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, fsyncing...)
	c := startCrash(t, connect(t, server.URL()))
	c.killAndStart(t, server)
	// the old client may still remember the killed server
	c.b.rdb = connect(t, server.URL())
	c.b.s = c.b.scripts()
	require.Zero(t, c.lost(t, c.b.rdb))
	c.b.requireBooks()
}

// A crash during a write leaves half of a transaction in the file. It
// must not be restored among later claims.
func TestHalfAWriteIsCutOffAndNeverComesBack(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, fsyncing...)
	events, repairs := tornOnce(t, server)
	require.Equal(t, 1, repairs, "the server did not load half a write by itself")
	require.Equal(t, []int64{1, 2}, events)

	// Control: a server that loads it restores
	// the claim that was never answered.
	events, _ = tornOnce(t, testenv.Redis(t, "appendonly yes", "appendfsync always"))
	t.Logf("with aof-load-truncated yes the stream holds seq %v", events)
	if strings.HasPrefix(serverVersion(t, server), "7.0.") { // later ones may be mended
		require.Equal(t, []int64{1, 2, 2}, events)
	}
}

// tornOnce claims, and cuts the file within the second claim's
// transaction. Then it claims and crashes again, and returns the seq of
// the events in the stream.
func tornOnce(t *testing.T, server *testenv.RedisServer) (seqs []int64, repairs int) {
	t.Helper()
	b := newBundle(t, connect(t, server.URL()), nil)
	b.claim(want("first", 1, ""))
	b.claim(want("torn", 1, ""))
	dir := b.rdb.ConfigGet(t.Context(), "dir").Val()["dir"]
	server.Kill()
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.NoError(t, os.Truncate(files[0], info.Size()-int64(len("*1\r\n$4\r\nEXEC\r\n"))-5))
	repairs = server.StartRepaired()
	b.rdb = connect(t, server.URL())
	b.s = b.scripts()
	b.claim(want("second", 1, ""))
	server.Kill()
	server.Start()
	b.rdb = connect(t, server.URL())
	for _, e := range b.events() {
		seqs = append(seqs, e.Seq)
	}
	return seqs, repairs
}

func serverVersion(t *testing.T, server *testenv.RedisServer) string {
	t.Helper()
	info, err := server.Client().InfoMap(t.Context(), "server").Result()
	require.NoError(t, err)
	return info["Server"]["redis_version"]
}

// Control: the same rush on a Redis without persistence loses all, and
// the count finds it. Nothing is sold twice after it.
func TestClaimsToldFastAreLostWithRedisAndCounted(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	rdb := connect(t, server.URL())
	c := startCrash(t, rdb)
	c.more(t, 200)
	server.Kill()
	c.stop()
	server.Start()
	c.b.rdb = connect(t, server.URL())
	c.b.s = c.b.scripts()
	require.NotEmpty(t, c.yes)
	require.Equal(t, len(c.yes), c.lost(t, c.b.rdb))
	require.Equal(t, []models.Outcome{models.OutcomeAbsent}, c.b.outcomes(wants("late", 1)...))
}

var fsyncing = []string{"appendonly yes", "appendfsync always", "aof-load-truncated no"}
