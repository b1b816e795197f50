package bench_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

// plenty is a stock that no round exhausts.
const plenty = 1_000_000_000

// broker is the benchmark's own Redis, with a client like production's.
type broker struct {
	server  *testenv.RedisServer
	rdb     redis.UniversalClient
	scripts *lua.Scripts
	made    atomic.Int64

	subjects []string // limited by its campaigns
}

func newBroker(b *testing.B) *broker {
	b.Helper()
	return brokerOn(b, testenv.Redis(b))
}

func brokerOn(b *testing.B, server *testenv.RedisServer) *broker {
	b.Helper()
	rdb, err := redisconn.Connect(server.URL())
	require.NoError(b, err)
	b.Cleanup(func() { _ = rdb.Close() })
	scripts, err := lua.New(rdb, lua.Options{})
	require.NoError(b, err)
	require.NoError(b, scripts.Preload(b.Context()))
	return &broker{server: server, rdb: rdb, scripts: scripts}
}

// campaign loads a campaign with the article's three limits into Redis.
func (r *broker) campaign(b *testing.B, total int64) lua.Meta {
	b.Helper()
	return r.limited(b, total, 3, 2)
}

func (r *broker) limited(b *testing.B, total, perUser, perDay int64) lua.Meta {
	b.Helper()
	c := models.Campaign{
		ID: fmt.Sprintf("bench-%d-%p", r.made.Add(1), r), Kind: models.KindCoupon, Status: models.StatusOpen, TimeZone: "UTC",
		Total: total, PerUser: perUser, PerUserPerDay: perDay, Version: 1, Epoch: 1, Limits: r.limits(),
	}
	loaded, err := r.scripts.Load(b.Context(), &c)
	require.NoError(b, err)
	require.True(b, loaded)
	meta, err := r.scripts.MetaOf(&c)
	require.NoError(b, err)
	return meta
}

func (r *broker) taken(b *testing.B, m lua.Meta) int64 {
	b.Helper()
	state, err := r.scripts.State(b.Context(), m.ID)
	require.NoError(b, err)
	return state.Taken
}

// forget removes a campaign and the stream, so that each round
// starts with the same Redis.
func (r *broker) forget(b *testing.B, m lua.Meta) {
	b.Helper()
	k := lua.KeysOf(m.ID, m.Partition)
	// Not UNLINK: its thread would still run in the next round.
	require.NoError(b, r.rdb.Do(longAfter(b), "DEL", k.State, k.Users, k.Keys, k.Stream).Err())
}

func longAfter(b *testing.B) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	b.Cleanup(cancel)
	return ctx
}

// usage is what a Redis has used so far.
type usage struct {
	at       time.Time
	cpu      time.Duration // of the process
	scripts  time.Duration // inside EVALSHA
	evalshas int64
}

func (r *broker) usage(b *testing.B) usage {
	b.Helper()
	info, err := r.rdb.InfoMap(b.Context(), "cpu", "commandstats").Result()
	require.NoError(b, err)
	u := usage{at: time.Now()}
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		require.NoError(b, err)
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
	stats := info["Commandstats"]["cmdstat_evalsha"] // calls=1,usec=2,...
	u.evalshas = statOf(b, stats, "calls")
	u.scripts = time.Duration(statOf(b, stats, "usec")) * time.Microsecond
	return u
}

func statOf(b *testing.B, stats, name string) int64 {
	b.Helper()
	for field := range strings.SplitSeq(stats, ",") {
		if value, found := strings.CutPrefix(field, name+"="); found {
			n, err := strconv.ParseInt(value, 10, 64)
			require.NoError(b, err)
			return n
		}
	}
	return 0
}

// since adds the cost of one claim to Redis since before, and Redis' load.
func (s *sheet) since(b *testing.B, r *broker, before usage, name string, claims int64) {
	b.Helper()
	now := r.usage(b)
	s.add(name+": in the script", "µs/claim", perClaim(now.scripts-before.scripts, claims))
	s.add(name+": Redis CPU in all", "µs/claim", perClaim(now.cpu-before.cpu, claims))
	s.add(name+": Redis busy", "% of a core", 100*float64(now.cpu-before.cpu)/float64(now.at.Sub(before.at)))
}

// requests makes claims of new users, with their own keys if keyed.
func requests(reqs []lua.ClaimRequest, prefix string, from int64, keyed bool) []lua.ClaimRequest {
	for i := range reqs {
		user := prefix + strconv.FormatInt(from+int64(i), 10)
		reqs[i] = lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: user, Quantity: 1}
		if keyed {
			reqs[i].Key = "key-" + user
		}
	}
	return reqs
}
