package bench_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/lua"
	"dibs/models"
)

// The red packet article's workload: packets taken one by one
// over some connections, by its script.
const (
	articlePackets     = 100_000
	packetConnections  = 20
	manyConnections    = 200
	packetListPath     = "../lab/red_packet.lua"
	packetsOnOffer     = 1_000_000 // to a load over HTTP
	packetsPerCallMost = 128
)

// benchPackets hands out packets by the article's script and by
// Dibs', and loads a million into Redis.
func benchPackets(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b), wrkVersion(b)}
	tool(b, "redis-benchmark", "redis-tools")
	c := &counters{broker: r, api: startChild(b, childAPI, childSettings{RedisURL: r.server.URL()})}
	header, body := c.sample(b)
	c.noop = startChild(b, childNoop, childSettings{Header: header, Body: body})
	const inC, inGo, ours = "article's script, one by one from C", "article's script, one by one from Go", "Dibs, 128 a call"
	const noop, http, more, batched = "no-op over HTTP", "Dibs over HTTP", "Dibs over HTTP, 200 connections", "Dibs over HTTP, batches of 256"
	s.takeTurns([]func(){
		func() { s.articlePackets(b, r, inC, s.redisBenchmark) },
		func() { s.packets(b, r, ours) },
		func() { s.articlePackets(b, r, inGo, s.goBenchmark) },
		func() { s.packetsOverHTTP(b, c, http, packetConnections) },
		func() {
			s.load(b, noop, c.noop, func() wrkResult { return wrk(b, c.noop.addr, "any", packetConnections, true) })
		},
		func() { s.packetsOverHTTP(b, c, more, manyConnections) },
		func() { s.packetsInBatches(b, c, batched) },
	})
	s.ratio(b, ours+" / article's script from Go", ours, inGo, 0)
	s.ratio(b, ours+" / article's script from C", ours, inC, 0)
	s.ratio(b, batched+" / article's script from Go", batched, inGo, 1)
	s.ratio(b, http+" / article's script from Go", http, inGo, 0)
	s.ratio(b, http+" / article's script from C", http, inC, 0)
	const cpu = ": Redis CPU in all"
	s.ratio(b, "Redis CPU a packet, article's script from C / Dibs", inC+cpu, ours+cpu, 0)
	s.ratio(b, more+" / article's script from Go", more, inGo, 0)
	s.ratio(b, noop+" / article's script from C", noop, inC, 0)
	s.note(fmt.Sprintf("Article: %d packets in a list, a call a packet over %d connections, no pipelining: from C by redis-benchmark,"+
		" from Go by go-redis, a language's client as the article had one.", amount(articlePackets), packetConnections))
	s.note("Dibs: the same packets, driven from Go; each claim has its key, its record and its event in the stream.")
	s.note(fmt.Sprintf("Over HTTP: wrk over %d connections, a claim a request, each with a key of its own; servers share the cores."+
		" The no-op handler reads the body and answers 201 as a claim is answered.", packetConnections))
}

// packetsInBatches hands out all packets over HTTP, many claims per request.
func (s *sheet) packetsInBatches(b *testing.B, c *counters, name string) {
	total := amount(articlePackets)
	m := c.broker.packetCampaign(b, total)
	before, start := c.api.cpu(b), time.Now()
	sendBatches(b, c.api.addr, total, []string{m.ID})
	s.add(name, "packets/s", float64(total)/time.Since(start).Seconds())
	s.add(name+": CPU of the API", "µs/packet", perClaim(c.api.cpu(b)-before, int64(total)))
	require.Equal(b, int64(total), c.broker.taken(b, m))
	c.broker.forgetPackets(b, m)
}

func (r *broker) packetCampaign(b *testing.B, packets int) lua.Meta {
	b.Helper()
	c := models.Campaign{
		ID: fmt.Sprintf("rain-%d", r.made.Add(1)), Kind: models.KindPacket, Status: models.StatusOpen, TimeZone: "UTC",
		Total: int64(packets), PerUser: 1, Currency: "CNY", Version: 1, Epoch: 1,
	}
	loaded, err := r.scripts.Load(b.Context(), &c)
	require.NoError(b, err)
	require.True(b, loaded)
	all := make([]models.Packet, packets)
	for i := range all {
		all[i] = models.Packet{ID: fmt.Sprintf("_%08d", i+1), Amount: int64(1 + i%2000)}
	}
	for at := 0; at < packets; {
		part := all[at:min(at+lua.PushMax, packets)]
		upto, err := r.scripts.Push(b.Context(), c.ID, &lua.Push{
			Epoch: 1, After: int64(at), Upto: int64(at + len(part)), Units: int64(len(part)), Packets: part,
		})
		require.NoError(b, err)
		at = int(upto)
	}
	meta, err := r.scripts.MetaOf(&c)
	require.NoError(b, err)
	return meta
}

func (r *broker) forgetPackets(b *testing.B, m lua.Meta) {
	b.Helper()
	r.forget(b, m)
	keys, err := r.rdb.Keys(longAfter(b), lua.KeysOf(m.ID, m.Partition).State+"*").Result()
	require.NoError(b, err)
	if len(keys) > 0 {
		require.NoError(b, r.rdb.Del(longAfter(b), keys...).Err())
	}
}

// packets hands out all packets through lua.Scripts.
func (s *sheet) packets(b *testing.B, r *broker, name string) {
	total := int64(amount(articlePackets))
	m := r.packetCampaign(b, int(total))
	before, start := r.usage(b), time.Now()
	var next, taken atomic.Int64
	group, ctx := errgroup.WithContext(b.Context())
	for range drivers(packetsPerCallMost) {
		group.Go(func() error {
			for {
				upto := next.Add(packetsPerCallMost)
				from := upto - packetsPerCallMost
				if from >= total {
					return nil
				}
				reqs := make([]lua.ClaimRequest, min(upto, total)-from)
				replies, _, err := r.scripts.Claim(ctx, m, requests(reqs, "user-", from, true))
				if err != nil {
					return err
				}
				if err := allTaken(replies); err != nil {
					return err
				}
				taken.Add(int64(len(reqs)))
			}
		})
	}
	require.NoError(b, group.Wait())
	took := time.Since(start)
	s.since(b, r, before, name, total)
	require.Equal(b, total, taken.Load())
	require.Equal(b, total, r.taken(b, m))
	s.add(name, "packets/s", float64(total)/took.Seconds())
	r.forgetPackets(b, m)
}

// articlePackets makes calls of the article's script. Users are
// random, so a few repeat.
func (s *sheet) articlePackets(b *testing.B, r *broker, name string, run func(*testing.B, *broker, string, articleCalls) float64) {
	ctx := longAfter(b)
	keys := []string{"{a}:packets", "{a}:users", "{a}:taken"}
	require.NoError(b, r.rdb.Del(ctx, keys...).Err())
	calls := amount(articlePackets)
	for at := 0; at < calls; at += 1000 {
		packets := make([]any, 0, 1000)
		for i := at; i < min(at+1000, calls); i++ {
			packets = append(packets, fmt.Sprintf(`{"id":%d,"money":%d}`, i, 1+i%2000))
		}
		require.NoError(b, r.rdb.LPush(ctx, keys[0], packets...).Err())
	}
	rate := run(b, r, name, articleCalls{digest: r.loadScript(b, packetListPath), keys: keys, connections: packetConnections, calls: calls})
	taken, err := r.rdb.LLen(ctx, keys[2]).Result()
	require.NoError(b, err)
	require.Greater(b, taken, int64(calls*99/100))
	s.add(name, "packets/s", rate*float64(taken)/float64(calls))
	require.NoError(b, r.rdb.Del(ctx, keys...).Err())
}

func (s *sheet) goBenchmark(b *testing.B, r *broker, name string, c articleCalls) float64 {
	b.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: r.server.Addr(), PoolSize: c.connections, MinIdleConns: c.connections})
	defer func() { _ = rdb.Close() }()
	require.NoError(b, rdb.Ping(b.Context()).Err())
	var next atomic.Int64
	before, start := r.usage(b), time.Now()
	group, ctx := errgroup.WithContext(b.Context())
	for range c.connections {
		group.Go(func() error {
			for next.Add(1) <= int64(c.calls) {
				user := fmt.Sprintf("user-%012d", rand.IntN(1_000_000_000))
				if err := rdb.EvalSha(ctx, c.digest, c.keys, user).Err(); err != nil && !errors.Is(err, redis.Nil) {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
	took := time.Since(start)
	s.since(b, r, before, name, int64(c.calls))
	return float64(c.calls) / took.Seconds()
}

func (s *sheet) packetsOverHTTP(b *testing.B, c *counters, name string, connections int) {
	m := c.broker.packetCampaign(b, amount(packetsOnOffer))
	got := s.load(b, name, c.api, func() wrkResult { return wrk(b, c.api.addr, m.ID, connections, true) })
	require.Zero(b, got.Refused)
	require.GreaterOrEqual(b, c.broker.taken(b, m), got.Requests)
	c.broker.forgetPackets(b, m)
}
