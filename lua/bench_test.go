package lua_test

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// articleSource is the script of the article that Dibs is compared with. It
// has three limits, one claim a call, and neither stream nor replay.
//
//go:embed testdata/article.lua
var articleSource string

// BenchmarkClaim runs claim.lua with batches of claims over 4 connections. It
// also reports what a claim costs Redis inside of the script.
func BenchmarkClaim(b *testing.B) {
	for _, perCall := range []int{1, 16, 32, 128} {
		b.Run(fmt.Sprintf("%d-a-call", perCall), func(b *testing.B) {
			rdb := connect(b, testenv.Redis(b).URL())
			camp := newBundle(b, rdb, func(c *models.Campaign) { c.Total, c.PerUser, c.PerUserPerDay = models.UnitsMax, 3, 2 })
			spread(b, rdb, 4, perCall, func(ctx context.Context, first int) error {
				replies, _, err := camp.s.Claim(ctx, camp.meta, newcomers(first, perCall))
				if err == nil && replies[0].Outcome != models.OutcomeClaimed {
					err = fmt.Errorf("claim was %s", replies[0].Outcome)
				}
				return err
			})
			camp.requireSeq(b)
		})
	}
}

// BenchmarkArticle is the baseline: the article's script, one claim a
// call over 50 connections.
func BenchmarkArticle(b *testing.B) {
	rdb := connect(b, testenv.Redis(b).URL())
	require.NoError(b, rdb.HSet(b.Context(), "c", "total", models.UnitsMax, "per_user", 3, "per_user_per_day", 2).Err())
	script := redis.NewScript(articleSource)
	require.NoError(b, script.Load(b.Context(), rdb).Err())
	keys := []string{"c", "taken", "users", "days"}
	spread(b, rdb, 50, 1, func(ctx context.Context, first int) error {
		return script.EvalSha(ctx, rdb, keys, userName(first)).Err()
	})
}

func userName(i int) string { return "user-" + strconv.Itoa(i) }

func newcomers(first, n int) []lua.ClaimRequest {
	reqs := make([]lua.ClaimRequest, n)
	for i := range reqs {
		user := userName(first + i)
		reqs[i] = lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: user, Quantity: 1, Key: "key-of-" + user}
	}
	return reqs
}

// spread runs b.N claims over some goroutines, perCall claims a call.
// first is the number of a call's first user.
func spread(b *testing.B, rdb redis.UniversalClient, goroutines, perCall int, call func(ctx context.Context, first int) error) {
	b.Helper()
	calls := (b.N + perCall - 1) / perCall
	var next atomic.Int64
	var wg sync.WaitGroup
	require.NoError(b, rdb.ConfigResetStat(b.Context()).Err())
	b.ReportAllocs()
	b.ResetTimer()
	for range goroutines {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= calls; i = int(next.Add(1)) {
				if err := call(b.Context(), i*perCall); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	claims := float64(calls * perCall)
	b.ReportMetric(claims/b.Elapsed().Seconds(), "claims/s")
	b.ReportMetric(float64(commandStat(b, rdb, "usec"))/claims, "redis-us/claim")
}

var evalshaStat = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// commandStat reads calls or usec of EVALSHA since the last reset; 0 is none.
func commandStat(t testing.TB, rdb redis.UniversalClient, field string) int {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	found := evalshaStat.FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[map[string]int{"calls": 1, "usec": 2}[field]])
	require.NoError(t, err)
	return n
}

func (b *bundle) requireSeq(t testing.TB) {
	t.Helper()
	length, err := b.rdb.XLen(t.Context(), b.keys.Stream).Result()
	require.NoError(t, err)
	require.Equal(t, b.state().Seq, length)
}
