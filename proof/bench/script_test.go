package bench_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/lua"
	"dibs/models"
)

// articlePath is the script of the article that Dibs is compared with.
const articlePath = "../../lua/testdata/article.lua"

// errRefused means that a claim should have been accepted.
var errRefused = errors.New("bench: a claim was refused")

const articleClients = 50

func benchScript(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b)}
	tool(b, "redis-benchmark", "redis-tools")
	const article = "article's script, one claim a call"
	nameOf := func(perCall int) string { return fmt.Sprintf("Dibs, %d a call", perCall) }
	s.takeTurns([]func(){
		func() { s.script(b, r, nameOf(128), 128) },
		func() { s.article(b, r, article) },
		func() { s.script(b, r, nameOf(32), 32) },
		func() { s.script(b, r, nameOf(8), 8) },
		func() { s.script(b, r, nameOf(1), 1) },
	})
	s.ratio(b, nameOf(128)+" / article's script", nameOf(128), article, 0)
	s.ratio(b, nameOf(32)+" / article's script", nameOf(32), article, 0)
	s.ratio(b, nameOf(1)+" / article's script", nameOf(1), article, 0)
	const cpu = ": Redis CPU in all"
	s.ratioAtMost(b, "Redis CPU a claim, "+nameOf(1)+" / article's script", nameOf(1)+cpu, article+cpu, 2.2)
	s.ratioAtMost(b, "Redis CPU a claim, "+nameOf(8)+" / article's script", nameOf(8)+cpu, article+cpu, 0.8)
	s.note("Dibs: driven from Go; each claim has an idempotency key of its own and is XADDed to the stream in the same call.")
	s.note("Article: driven by redis-benchmark, 50 connections, no pipelining. It keeps no claim, no key and no event.")
}

// drivers is the number of goroutines that keep Redis busy at a call size.
func drivers(perCall int) int { return max(4, 64/perCall) }

// script sends claims through lua.Scripts for a time.
func (s *sheet) script(b *testing.B, r *broker, name string, perCall int) {
	m := r.campaign(b, plenty)
	until := time.Now().Add(span(2 * time.Second))
	var sent atomic.Int64
	before := r.usage(b)
	start := time.Now()
	group, ctx := errgroup.WithContext(b.Context())
	for worker := range drivers(perCall) {
		group.Go(func() error {
			reqs, prefix := make([]lua.ClaimRequest, perCall), fmt.Sprintf("user-%02d-", worker)
			for from := int64(0); time.Now().Before(until); from += int64(perCall) {
				replies, _, err := r.scripts.Claim(ctx, m, r.carry(requests(reqs, prefix, from, true)))
				if err != nil {
					return err
				}
				if err := allTaken(replies); err != nil {
					return err
				}
				sent.Add(int64(perCall))
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
	took := time.Since(start)
	s.since(b, r, before, name, sent.Load())
	require.Equal(b, sent.Load(), r.taken(b, m))
	s.add(name, "claims/s", float64(sent.Load())/took.Seconds())
	r.forget(b, m)
}

func allTaken(replies []lua.ClaimReply) error {
	for i := range replies {
		if replies[i].Outcome != models.OutcomeClaimed {
			return fmt.Errorf("%w: %s", errRefused, replies[i].Outcome)
		}
	}
	return nil
}

func (s *sheet) article(b *testing.B, r *broker, name string) {
	ctx := longAfter(b)
	keys := []string{"{a}:coupon", "{a}:count", "{a}:users", "{a}:days"}
	require.NoError(b, r.rdb.Del(ctx, keys...).Err())
	require.NoError(b, r.rdb.HSet(ctx, keys[0], "total", plenty, "per_user", 3, "per_user_per_day", 2).Err())
	calls := amount(150_000)
	rate := s.redisBenchmark(b, r, name, articleCalls{digest: r.loadScript(b, articlePath), keys: keys, connections: articleClients, calls: calls})
	taken, err := r.rdb.HGet(ctx, keys[1], "taken").Int()
	require.NoError(b, err)
	require.Equal(b, calls, taken)
	s.add(name, "claims/s", rate)
	require.NoError(b, r.rdb.Del(ctx, keys...).Err())
}

// loadScript loads an article's script into Redis and returns its digest.
func (r *broker) loadScript(b *testing.B, path string) string {
	b.Helper()
	text, err := os.ReadFile(path)
	require.NoError(b, err)
	digest, err := r.rdb.ScriptLoad(b.Context(), string(text)).Result()
	require.NoError(b, err)
	return digest
}

// articleCalls are calls of an article's script, each for a random user.
type articleCalls struct {
	digest             string
	keys               []string
	connections, calls int
}

// redisBenchmark makes the calls with redis-benchmark, sequentially on each
// connection, adds their cost to Redis, and returns calls per second.
func (s *sheet) redisBenchmark(b *testing.B, r *broker, name string, c articleCalls) float64 {
	b.Helper()
	host, port, err := net.SplitHostPort(r.server.Addr())
	require.NoError(b, err)
	args := append([]string{
		"-h", host, "-p", port, "-c", strconv.Itoa(c.connections), "-n", strconv.Itoa(c.calls), "-r", "1000000000", "--csv",
		"EVALSHA", c.digest, strconv.Itoa(len(c.keys)),
	}, c.keys...)
	before := r.usage(b)
	out, err := exec.CommandContext(longAfter(b), "redis-benchmark", append(args, "user-__rand_int__")...).Output()
	require.NoError(b, err)
	s.since(b, r, before, name, int64(c.calls))
	return rateOf(b, string(out))
}

// rateOf reads the column rps of redis-benchmark's last line.
func rateOf(b *testing.B, out string) float64 {
	b.Helper()
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(b, err, out)
	require.NotEmpty(b, rows, out)
	rate, err := strconv.ParseFloat(rows[len(rows)-1][1], 64)
	require.NoError(b, err, out)
	return rate
}

func (r *broker) version(b *testing.B) string {
	b.Helper()
	info, err := r.rdb.InfoMap(b.Context(), "server").Result()
	require.NoError(b, err)
	if v := info["Server"]["valkey_version"]; v != "" {
		return "Valkey " + v
	}
	return "Redis " + info["Server"]["redis_version"]
}
