package bench_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/proof/load"
)

// benchDurability runs the same load on an API of each
// durability, over one Redis and one MySQL, with one consumer.
func benchDurability(b *testing.B, s *sheet) {
	r := brokerOn(b, testenv.Redis(b, "appendonly yes", "appendfsync always", "aof-load-truncated no", "dir "+b.TempDir()))
	st := stores(b)[0]
	s.Facts = []string{r.version(b), st.version(b), wrkVersion(b), fmt.Sprintf("a fsync of 4 kB takes %s here", fsyncTakes(b))}
	program := buildDibs(b)
	settings := []string{"DIBS_REDIS_URL=" + r.server.URL(), "DIBS_MYSQL_DSN=" + st.dsn, "DIBS_HTTP_ADDR=127.0.0.1:0"}
	startDibs(b, program, "consumer", settings...)
	var sides []func()
	connections := []int{50, 512}
	name := func(d lua.Durability, connections int) string {
		return fmt.Sprintf("%s, %d connections", d, connections)
	}
	for _, d := range []lua.Durability{lua.Fast, lua.Fsync, lua.MySQL} {
		policy := "everysec"
		if d == lua.Fsync {
			policy = "always"
		}
		w := &whole{broker: r, store: st, api: startDibs(b, program, "api", append(settings, "DIBS_DURABILITY="+d.String())...)}
		for _, n := range connections {
			sides = append(sides, func() {
				require.NoError(b, r.rdb.ConfigSet(b.Context(), "appendfsync", policy).Err())
				w.answered(b, s, name(d, n), n)
			})
		}
		sides = append(sides, func() {
			require.NoError(b, r.rdb.ConfigSet(b.Context(), "appendfsync", policy).Err())
			w.batched(b, s, fmt.Sprintf("%s, batches of %d", d, batchClaims))
			w.atRate(b, s, fmt.Sprintf("%s, %d claims/s", d, evenRate))
		})
	}
	s.takeTurns(sides)
	for _, d := range []lua.Durability{lua.Fsync, lua.MySQL} {
		wanted := 0.0
		if d == lua.MySQL {
			wanted = 0.9
		}
		s.ratio(b, fmt.Sprintf("%s / fast, 50 connections", d), name(d, 50), name(lua.Fast, 50), 0)
		s.ratio(b, fmt.Sprintf("%s / fast, 512 connections", d), name(d, 512), name(lua.Fast, 512), wanted)
		of := func(d lua.Durability) string { return fmt.Sprintf("%s, batches of %d", d, batchClaims) }
		s.ratio(b, of(d)+" / fast", of(d), of(lua.Fast), wanted)
	}
	s.note(fmt.Sprintf("wrk with one thread posts for %s at a time, each claim by a user of its own. `dibs api` of each durability and one"+
		" `dibs consumer`; Redis, SQL server and wrk share the cores with them.", wrkSpan()))
	s.note("Redis has an append-only file on the disk: with fast and mysql it is synced each second, with fsync before each reply.")
}

// answered loads the API with claims that must all be granted.
func (w *whole) answered(b *testing.B, s *sheet, name string, connections int) {
	b.Helper()
	id := w.create(b)
	got := s.load(b, name, w.api, func() wrkResult { return wrk(b, w.api.addr, id, connections, true) })
	require.Zero(b, got.Refused)
	s.add(name+": p50", "ms", float64(got.P50Us)/1000)
	w.store.requireBooked(b, lua.Meta{ID: id}, w.untilDrained(b, id))
}

// evenRate is about half of the server's limit of single claims here.
const evenRate = 6000

func (w *whole) batched(b *testing.B, s *sheet, name string) {
	b.Helper()
	id := w.create(b)
	claims := amount(200_000)
	started := time.Now()
	sendBatches(b, w.api.addr, claims, []string{id})
	s.add(name, "claims/s", float64(claims)/time.Since(started).Seconds())
	w.store.requireBooked(b, lua.Meta{ID: id}, w.untilDrained(b, id))
}

// atRate sends claims at an even rate, one per request.
func (w *whole) atRate(b *testing.B, s *sheet, name string) {
	b.Helper()
	id := w.create(b)
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}, Timeout: time.Minute}
	defer c.CloseIdleConnections()
	plan := load.Plan{Rate: evenRate, Duration: span(10 * time.Second), WarmUp: time.Second, Connections: 512}
	got, err := load.Run(b.Context(), plan, func(ctx context.Context, n int64) load.Answer {
		body := fmt.Sprintf(`{"user_id":"user-%d"}`, n)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.api.addr+"/v1/campaigns/"+id+"/claims", strings.NewReader(body))
		if err != nil {
			return load.Answer{Code: err.Error(), Fault: true}
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := c.Do(req)
		if err != nil {
			return load.Answer{Code: err.Error(), Fault: true}
		}
		defer func() { _ = res.Body.Close() }()
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != http.StatusCreated {
			return load.Answer{Code: res.Status, Fault: true}
		}
		return load.Answer{}
	})
	require.NoError(b, err)
	require.Zero(b, got.Measured.Faulty())
	s.add(name+": p50", "ms", float64(got.Measured.At(0.5).Microseconds())/1000)
	s.add(name+": p99", "ms", float64(got.Measured.At(0.99).Microseconds())/1000)
	w.store.requireBooked(b, lua.Meta{ID: id}, w.untilDrained(b, id))
}

// fsyncTakes is the time of one synced write to the files' disk.
func fsyncTakes(b *testing.B) time.Duration {
	b.Helper()
	file, err := os.CreateTemp(b.TempDir(), "")
	require.NoError(b, err)
	defer func() { _ = file.Close() }()
	const times = 200
	start := time.Now()
	for range times {
		_, err := file.Write(make([]byte, 4096))
		require.NoError(b, err)
		require.NoError(b, file.Sync())
	}
	return (time.Since(start) / times).Round(time.Microsecond)
}
