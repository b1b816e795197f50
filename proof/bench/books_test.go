package bench_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"time"

	"dibs/consumer"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/offset"
	"dibs/syncer/writer"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// benchBooks writes a full stream's claims to MySQL, compared with the
// server's upper bound and with a transaction per claim.
func benchBooks(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b)}
	var sides, compare []func()
	for _, st := range stores(b) {
		s.Facts = append(s.Facts, st.version(b))
		more, ratios := booksOn(b, s, r, st)
		sides, compare = append(sides, more...), append(compare, ratios)
	}
	s.takeTurns(append(sides, func() { s.add("a sync of the disk", "ms", float64(fsyncTakes(b).Microseconds())/1000) }))
	for _, ratios := range compare {
		ratios()
	}
	s.note(fmt.Sprintf("Consumer and writer: %d claims wait in the stream; flushes of %d; from the first read to the last commit, reading and acking included.",
		amount(bookClaims), writer.DefaultFlushSize))
	s.note("Multi-row inserts: statements made beforehand, the same table and indexes, 1,000 rows a transaction, nothing else; the better of 1 and 2 connections.")
	s.note("A transaction a claim: one INSERT and one UPDATE of the campaign; the better of 1 and 8 connections.")
	s.note("The SQL server that is started here keeps its tables in memory where it can, and its redo log on the disk; every commit is synced.")
}

const bookClaims = 200_000

// booksOn returns one server's sides, and ratios to call after them.
func booksOn(b *testing.B, s *sheet, r *broker, st *store) (sides []func(), ratios func()) {
	on := func(what string) string { return st.name + ": " + what }
	ours, ceiling, each := on("consumer and writer"), on("multi-row inserts"), on("a transaction a claim")
	again := on("consumer and writer, after MySQL was restored to its beginning")
	sides = []func(){
		func() {
			run := runPipeline(b, r, st, amount(bookClaims), false)
			s.add(ours, "claims/s", float64(run.claims)/run.took.Seconds())
			s.add(ours+": CPU in Go", "µs/claim", perClaim(run.cpu.here, run.claims))
			s.add(ours+": CPU of Redis", "µs/claim", perClaim(run.cpu.redis, run.claims))
			s.add(ours+": CPU of the SQL server", "µs/claim", perClaim(run.cpu.sql, run.claims))
		},
		func() {
			run := runPipeline(b, r, st, amount(bookClaims), true)
			s.add(again, "claims/s", float64(run.claims)/run.took.Seconds())
		},
		func() { s.best(ceiling, []int{1, 2}, func(n int) float64 { return insertRows(b, r, st, n) }) },
		func() { s.best(each, []int{1, 8}, func(n int) float64 { return insertEach(b, r, st, n) }) },
	}
	ratios = func() {
		s.ratio(b, again+" / before", again, ours, 0.9)
		s.ratio(b, ours+" / multi-row inserts", ours, ceiling, 0)
		s.ratio(b, ours+" / a transaction a claim", ours, each, 0)
	}
	return sides, ratios
}

// best adds a series for each number of connections, and one of the best.
func (s *sheet) best(name string, connections []int, run func(connections int) float64) {
	most := 0.0
	for _, n := range connections {
		rate := run(n)
		s.add(name+", "+counted(n, "connection"), "claims/s", rate)
		most = max(most, rate)
	}
	s.add(name, "claims/s", most)
}

// pipelineRun is the cost of moving claims from the stream to MySQL.
type pipelineRun struct {
	claims int64
	took   time.Duration
	cpu    cpuTimes
}

type cpuTimes struct{ here, redis, sql time.Duration }

func timesOf(b *testing.B, r *broker, st *store) cpuTimes {
	b.Helper()
	return cpuTimes{here: cpuOf(b, os.Getpid()), redis: r.usage(b).cpu, sql: cpuOf(b, st.pid)}
}

func (t cpuTimes) since(before cpuTimes) cpuTimes {
	return cpuTimes{here: t.here - before.here, redis: t.redis - before.redis, sql: t.sql - before.sql}
}

// runPipeline fills a stream, then times consumer and writer until every
// claim is committed. With isAgain MySQL first has them all and loses them,
// under a running consumer, and one more claim is made; timing starts when
// the consumer has restarted.
func runPipeline(b *testing.B, r *broker, st *store, claims int, isAgain bool) pipelineRun {
	b.Helper()
	m := r.campaign(b, plenty)
	st.empty(b, m)
	r.fill(b, m, "user-1", claims, true)
	log := slog.New(slog.DiscardHandler)
	books, err := writer.New(writer.Config{DB: st.gorm, Logger: log})
	require.NoError(b, err)
	reader, err := consumer.NewApplier(consumer.ApplierConfig{
		Client: r.rdb, Name: "bench", Log: books, Logger: log, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(b, err)
	scripts, err := lua.New(r.rdb, lua.Options{})
	require.NoError(b, err)
	applied := offset.NewStreams(st.gorm, scripts)
	var ctx context.Context
	var stop func()
	there := int64(0) // claims applied before the timing
	if isAgain {
		ctx, stop = startReader(b, reader)
		require.NoError(b, applied.AwaitApplied(ctx))
		st.empty(b, m)
		r.fill(b, m, "user-2", 1, true)
		claims++
		require.Eventually(b, func() bool { // it has noticed
			offsets, err := offset.Read(ctx, st.gorm, 0)
			there = offsets[0].Read
			return err == nil && there > 0
		}, time.Minute, time.Millisecond)
	}
	before := timesOf(b, r, st)
	run := measure(int64(claims)-there, func() {
		if !isAgain {
			ctx, stop = startReader(b, reader) //nolint:fatcontext // of this round
		}
		err = applied.AwaitApplied(ctx)
	})
	require.NoError(b, err)
	run.cpu = timesOf(b, r, st).since(before)
	stop() // or it would read the next round's stream too
	require.NoError(b, books.Close(longAfter(b)))
	st.requireBooked(b, m, int64(claims))
	r.forget(b, m)
	return run
}

// startReader starts a reader that ends in two minutes, or by stop.
func startReader(b *testing.B, reader *consumer.Applier) (ctx context.Context, stop func()) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- reader.Run(ctx) }()
	return ctx, func() {
		cancel()
		require.NoError(b, <-ended)
	}
}

func measure(claims int64, run func()) pipelineRun {
	runtime.GC()
	start := time.Now()
	run()
	return pipelineRun{claims: claims, took: time.Since(start)}
}

// metaFor is a campaign for sides without Redis.
func metaFor(r *broker) lua.Meta {
	return lua.Meta{ID: fmt.Sprintf("bench-%d", r.made.Add(1)), Kind: models.KindCoupon}
}
