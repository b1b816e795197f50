package bench_test

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

const (
	shardPrimaries  = 4       // of the cluster, and shards of the campaign
	shardPartitions = 16      // four times the primaries, as docs/sharding.md advises
	shardUnits      = 200_000 // of a sale
	shardConns      = 50      // of users who come too late
)

// spreads is a whole Dibs over a Redis Cluster, with access to each primary.
type spreads struct {
	*whole
	nodes []*broker
}

// benchShards sells out campaigns of one shard and of several,
// over the same cluster.
func benchShards(b *testing.B, s *sheet) {
	addrs := testenv.RedisCluster(b, shardPrimaries)
	url := "redis://" + strings.Join(addrs, ",")
	st := stores(b)[0]
	w := &spreads{whole: &whole{broker: clusterBroker(b, url), store: st, span: wrkSpan()}}
	for _, addr := range addrs {
		node := &broker{rdb: redis.NewClient(&redis.Options{Addr: addr})}
		b.Cleanup(func() { _ = node.rdb.Close() })
		w.nodes = append(w.nodes, node)
	}
	s.Facts = []string{w.nodes[0].version(b) + fmt.Sprintf(", a cluster of %d primaries", shardPrimaries), st.version(b), wrkVersion(b)}
	program := buildDibs(b)
	settings := []string{
		"DIBS_REDIS_URL=" + url, "DIBS_MYSQL_DSN=" + st.dsn, "DIBS_HTTP_ADDR=127.0.0.1:0", "DIBS_PARTITIONS=" + strconv.Itoa(shardPartitions),
	}
	w.api = startDibs(b, program, "api", settings...)
	startDibs(b, program, "consumer", settings...) // units move once MySQL has applied them
	header, body := (&counters{broker: w.broker, api: w.api}).sample(b)
	w.noop = startChild(b, childNoop, childSettings{Header: header, Body: body})
	late, noop := "sold-out refusals", "no-op handler"
	s.takeTurns([]func(){
		func() { w.sellOut(b, s, ofShards1, w.spread(b, amount(shardUnits), 1)) },
		func() { w.sellOut(b, s, ofShards4, w.spread(b, amount(shardUnits), shardPrimaries)) },
		func() { w.sellOut(b, s, ofFour, w.four(b)...) },
		func() {
			s.load(b, noop, w.noop, func() wrkResult { return wrk(b, w.noop.addr, "any", shardConns, false) })
		},
		func() { w.late(b, s, of(late, ofShards1), 1) },
		func() { w.late(b, s, of(late, ofShards4), shardPrimaries) },
	})
	w.compare(b, s, late, noop)
	s.note("`dibs api` and `dibs consumer` as built for production; all servers share the cores with those who claim.")
	s.note(fmt.Sprintf("A sale: %d units to %d connections that send batches of %d, each claim by a user of its own with a key, until all are sold.",
		amount(shardUnits), batchDrivers, batchClaims))
	s.note("4 campaigns: of one shard each, on the primaries that the shards have: their servers share the cores as those of the shards do.")
	s.note(fmt.Sprintf("%d primaries / one is a calculation: as many nodes, less what a claim costs more, and less what the busiest is above the mean.",
		shardPrimaries))
}

func clusterBroker(b *testing.B, url string) *broker {
	b.Helper()
	rdb, err := redisconn.Connect(url)
	require.NoError(b, err)
	b.Cleanup(func() { _ = rdb.Close() })
	scripts, err := lua.New(rdb, lua.Options{Partitions: shardPartitions})
	require.NoError(b, err)
	return &broker{rdb: rdb, scripts: scripts}
}

// The sides of a sale.
const (
	ofShards1 = "shards: 1"
	ofShards4 = "shards: 4"
	ofFour    = "4 campaigns" // of one shard each, on as many primaries
)

func of(what, side string) string { return what + ", " + side }

// four makes unsharded campaigns on the partitions of a campaign's shards:
// their cost is that of several primaries without shards.
func (w *spreads) four(b *testing.B) (ids []string) {
	b.Helper()
	places := make(map[int]bool)
	for shard := range shardPrimaries {
		places[lua.PartitionOf(models.ShardID("bench", shard+1), shardPartitions)] = true
	}
	require.Len(b, places, shardPrimaries)
	for len(ids) < shardPrimaries {
		next := fmt.Sprintf("bench-%d", w.broker.made.Load()+1)
		if at := lua.PartitionOf(next, shardPartitions); places[at] {
			places[at] = false
			ids = append(ids, w.spread(b, amount(shardUnits)/shardPrimaries, 1))
		} else {
			w.broker.made.Add(1)
		}
	}
	return ids
}

func (w *spreads) compare(b *testing.B, s *sheet, late, noop string) {
	b.Helper()
	redisAndServer := "CPU of Redis and the SQL server"
	everything := "CPU of API, Redis and the SQL server"
	s.ratioAtMost(b, redisAndServer+": 4 shards / 1", of(redisAndServer, ofShards4), of(redisAndServer, ofShards1), 1.10)
	s.ratio(b, everything+": 4 shards / 1", of(everything, ofShards4), of(everything, ofShards1), 0)
	several := func(what string) string { return of(what, ofShards4) }
	s.ratioAtMost(b, redisAndServer+": 4 shards / 4 campaigns on the same primaries", several(redisAndServer), of(redisAndServer, ofFour), 1.15)
	cost, busiest := s.series[several(redisAndServer)], s.series[several("busiest primary / mean")]
	for i, one := range s.series[of(redisAndServer, ofFour)].Values {
		s.add("four primaries / one, calculated", "×", shardPrimaries*one/cost.Values[i]/busiest.Values[i])
	}
	s.goal(b, several("busiest primary / mean"), atMost, 1.3)
	s.goal(b, "four primaries / one, calculated", atLeast, 3.4)
	s.goal(b, several("held until 99 % was sold"), atMost, 1)
	s.goal(b, several("last 1 %, beside its share of the sale"), atMost, 200)
	s.goal(b, several("answered 503 of the last 1 %"), atMost, 1)
	s.ratio(b, "sold-out, 4 shards / no-op", several(late), noop, 0.9)
	s.ratio(b, "sold-out, 4 shards / 1 shard", several(late), of(late, ofShards1), 0.9)
}

func (w *spreads) spread(b *testing.B, total, shards int) string {
	b.Helper()
	id := fmt.Sprintf("bench-%d", w.broker.made.Add(1))
	w.call(b, http.MethodPost, "/v1/campaigns", fmt.Sprintf(`{"id":%q,"kind":"coupon","total":%d,"shards":%d}`, id, total, shards),
		http.StatusCreated, &struct{}{})
	return id
}

type sale struct {
	ids                []string // used in rotation
	total              int64
	api                string
	sent, sold, failed atomic.Int64
	lastAnswers        atomic.Int64 // since 99 % were sold
	lastFailed         atomic.Int64
	almost             func() // called once, when 99 % are sold
	almostAt, overAt   time.Time
}

func (w *spreads) sellOut(b *testing.B, s *sheet, side string, ids ...string) {
	b.Helper()
	total := amount(shardUnits)
	sl := &sale{ids: ids, total: int64(total), api: w.api.addr}
	movesBefore := w.metric(b, movesMetric)
	heldBefore, held, counted := w.metric(b, heldMetric), int64(0), make(chan struct{})
	sl.almost = func() {
		go func() {
			defer close(counted)
			held = w.metricNow(heldMetric) - heldBefore
		}()
	}
	before, api, server := w.usages(b), w.api.cpu(b), cpuOf(b, w.store.pid)
	started := time.Now()
	sl.run(b)
	nodes, inScripts, calls := w.since(b, before)
	apiTook, serverTook := w.api.cpu(b)-api, cpuOf(b, w.store.pid)-server
	<-counted
	require.GreaterOrEqual(b, held, int64(0), "the API shows its metrics")
	moves := w.metric(b, movesMetric) - movesBefore
	for _, id := range ids {
		var stock models.Stock
		w.call(b, http.MethodGet, "/v1/campaigns/"+id+"/stock", "", http.StatusOK, &stock)
		require.Equal(b, sl.total/int64(len(ids)), stock.Claimed)
		require.Zero(b, stock.Remaining)
	}

	redisTook := time.Duration(0)
	for _, one := range nodes {
		redisTook += one
	}
	add := func(what, unit string, value float64) { s.add(of(what, side), unit, value) }
	pace := 0.99 * float64(total) / sl.almostAt.Sub(started).Seconds()
	add("sale", "claims/s", pace)
	add("CPU of the API", "µs/claim", perClaim(apiTook, sl.total))
	add("CPU of Redis", "µs/claim", perClaim(redisTook, sl.total))
	add("in scripts", "µs/claim", perClaim(inScripts, sl.total))
	add("claims for a script call", "claims", float64(total)/float64(calls))
	add("CPU of the SQL server", "µs/claim", perClaim(serverTook, sl.total))
	add("CPU of Redis and the SQL server", "µs/claim", perClaim(redisTook+serverTook, sl.total))
	add("CPU of API, Redis and the SQL server", "µs/claim", perClaim(apiTook+redisTook+serverTook, sl.total))
	if side == ofShards4 {
		add("busiest primary / mean", "×", float64(slices.Max(nodes))*float64(len(nodes))/float64(redisTook))
		add("moves for 500 claims", "moves", 500*float64(moves)/float64(total))
		add("held until 99 % was sold", "% of claims", 100*float64(held)/(0.99*float64(total)))
		add("held in all", "claims", float64(w.metric(b, heldMetric)-heldBefore))
		add("answered 503 of the last 1 %", "% of answers", 100*float64(sl.lastFailed.Load())/float64(sl.lastAnswers.Load()))
	}
	last := sl.overAt.Sub(sl.almostAt).Seconds()
	add("last 1 %", "ms", 1000*last)
	add("last 1 %, beside its share of the sale", "ms", 1000*max(0, last-0.01*float64(total)/pace))
	add("answered 503", "claims", float64(sl.failed.Load()))
}

// run claims until all is sold.
func (sl *sale) run(b *testing.B) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: batchDrivers}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(b.Context())
	for range batchDrivers {
		group.Go(func() error {
			for ctx.Err() == nil && sl.sold.Load() < sl.total {
				if err := sl.claim(client); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
	require.Equal(b, sl.total, sl.sold.Load())
}

func (sl *sale) claim(client *http.Client) error {
	from := sl.sent.Add(batchClaims)
	answer, err := postBatch(client, sl.api, batchClaims, func(i int) (campaign, user string) {
		return sl.ids[i%len(sl.ids)], "user-" + strconv.FormatInt(from+int64(i), 10)
	})
	if err != nil {
		return err
	}
	sold := int64(0)
	failed := int64(0)
	for _, one := range answer.Results {
		switch one.Status {
		case http.StatusCreated:
			sold++
		case http.StatusServiceUnavailable:
			failed++
		}
	}
	sl.failed.Add(failed)
	now := sl.sold.Add(sold)
	if now >= sl.total*99/100 {
		sl.lastAnswers.Add(int64(len(answer.Results)))
		sl.lastFailed.Add(failed)
	}
	if line := sl.total * 99 / 100; now >= line && now-sold < line {
		sl.almostAt = time.Now()
		sl.almost()
	}
	if now == sl.total && sold > 0 {
		sl.overAt = time.Now()
	}
	return nil
}

// late claims after all is sold.
func (w *spreads) late(b *testing.B, s *sheet, name string, shards int) {
	b.Helper()
	id := w.spread(b, shards, shards)
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	_, err := postBatch(client, w.api.addr, 4*shards, func(i int) (campaign, user string) { return id, "first-" + strconv.Itoa(i) })
	require.NoError(b, err)
	r := s.load(b, name, w.api, func() wrkResult { return wrk(b, w.api.addr, id, shardConns, false) })
	require.Equal(b, r.Requests, r.Refused)
}

func (w *spreads) usages(b *testing.B) (all []usage) {
	b.Helper()
	for _, node := range w.nodes {
		all = append(all, node.usage(b))
	}
	return all
}

// since is each primary's CPU time since before, and the total
// time and number of script calls.
func (w *spreads) since(b *testing.B, before []usage) (took []time.Duration, inScripts time.Duration, calls int64) {
	b.Helper()
	for i, now := range w.usages(b) {
		took = append(took, now.cpu-before[i].cpu)
		inScripts, calls = inScripts+now.scripts-before[i].scripts, calls+now.evalshas-before[i].evalshas
	}
	return took, inScripts, calls
}

// Counters of the API process.
const (
	heldMetric  = "dibs_claims_held_seconds_count"
	movesMetric = "dibs_shard_moves_total"
)

// metric sums all series of a counter of the API process.
func (w *spreads) metric(b *testing.B, name string) int64 {
	b.Helper()
	n := w.metricNow(name)
	require.GreaterOrEqual(b, n, int64(0), "the API shows its metrics")
	return n
}

func (w *spreads) metricNow(name string) (sum int64) {
	resp, err := http.Get("http://" + w.api.addr + "/metrics")
	if err != nil {
		return -1
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if counter, _, _ := strings.Cut(series, "{"); counter != name {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return -1
		}
		sum += n
	}
	return sum
}
