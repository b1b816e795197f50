package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/lua"
)

const pipelineClaims = 200_000

// benchPipeline sends claims in batches over HTTP until they are in MySQL,
// alternating with the article's script, which stores no claim. It adds each
// part's CPU time per stored claim, and the space of a row.
func benchPipeline(b *testing.B, s *sheet) {
	tool(b, "redis-benchmark", "redis-tools")
	w := newWhole(b)
	r, st := w.broker, w.store
	s.Facts = w.facts(b)
	w.startBoth(b)
	article, booked := "article's script, one claim a call", fmt.Sprintf("booked, in batches of %d", batchClaims)
	allCPU := booked + ": CPU of API, consumer, Redis and SQL server"
	s.takeTurns([]func(){
		func() { s.article(b, r, article) },
		func() {
			id := w.create(b)
			api, consumer, redis, server := w.api.cpu(b), w.consumer.cpu(b), r.usage(b).cpu, cpuOf(b, st.pid)
			started := time.Now()
			sendBatches(b, w.api.addr, amount(pipelineClaims), []string{id})
			taken := w.untilDrained(b, id)
			s.add(booked, "claims/s", float64(taken)/time.Since(started).Seconds())
			api, consumer = w.api.cpu(b)-api, w.consumer.cpu(b)-consumer
			redis, server = r.usage(b).cpu-redis, cpuOf(b, st.pid)-server
			s.add(booked+": CPU of the API", "µs/claim", perClaim(api, taken))
			s.add(booked+": CPU of the consumer", "µs/claim", perClaim(consumer, taken))
			s.add(booked+": CPU of Redis", "µs/claim", perClaim(redis, taken))
			s.add(booked+": CPU of the SQL server", "µs/claim", perClaim(server, taken))
			s.add(allCPU, "µs/claim", perClaim(api+consumer+redis+server, taken))
			st.requireBooked(b, lua.Meta{ID: id}, taken)
		},
	})
	rows, bytes := st.claimsSize(b)
	s.add("a row of claims, indexes included", "bytes", float64(bytes)/float64(rows))
	s.ratio(b, booked+" / article's script", booked, article, 0.7)
	s.goal(b, allCPU, atMost, 31)
	s.goal(b, "a row of claims, indexes included", atMost, 349)
	s.note(fmt.Sprintf("`dibs api` and `dibs consumer` as built for production; %d connections with batches of %d claims with keys, %d claims a round, until the last is in MySQL.",
		batchDrivers, batchClaims, amount(pipelineClaims)))
	s.note("Article: driven by redis-benchmark, 50 connections, no pipelining. It keeps no claim, no key and no event.")
	s.note(fmt.Sprintf("Space of a row: data and indexes of the table over its %d rows, as the load left them.", rows))
}

func (s *store) claimsSize(b *testing.B) (rows, bytes int64) {
	b.Helper()
	s.exec(b.Context(), b, "ANALYZE TABLE claims")
	require.NoError(b, s.sql.QueryRowContext(b.Context(), "SELECT COUNT(*) FROM claims").Scan(&rows))
	require.NoError(b, s.sql.QueryRowContext(b.Context(), "SELECT data_length + index_length FROM information_schema.tables"+
		" WHERE table_schema = DATABASE() AND table_name = 'claims'").Scan(&bytes))
	return rows, bytes
}
