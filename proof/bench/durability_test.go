package bench_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

// benchDurability puts the same load on an API of each durability, over one Redis and one MySQL, with one consumer for all.
func benchDurability(b *testing.B, s *sheet) {
	r := brokerOn(b, testenv.Redis(b, "appendonly yes", "appendfsync always", "aof-load-truncated no", "dir "+b.TempDir()))
	st := stores(b)[0]
	s.Facts = []string{r.version(b), st.version(b), wrkVersion(b), fmt.Sprintf("a fsync of 4 kB takes %s here", fsyncTakes(b))}
	program := buildDibs(b)
	settings := []string{"DIBS_REDIS_URL=" + r.server.URL(), "DIBS_MYSQL_DSN=" + st.dsn, "DIBS_HTTP_ADDR=127.0.0.1:0"}
	startDibs(b, program, "consumer", settings...)
	var sides []func()
	connections := []int{50, 200}
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
	}
	s.takeTurns(sides)
	for _, n := range connections {
		for _, d := range []lua.Durability{lua.Fsync, lua.MySQL} {
			s.ratio(b, fmt.Sprintf("%s / fast, %d connections", d, n), name(d, n), name(lua.Fast, n), 0)
		}
	}
	s.note(fmt.Sprintf("wrk with one thread posts for %s at a time, each claim by a user of its own. `dibs api` of each durability and one"+
		" `dibs consumer`; Redis, SQL server and wrk share the cores with them.", wrkSpan()))
	s.note("Redis has an append-only file on the disk: with fast and mysql it is synced each second, with fsync before each reply.")
}

// answered loads the API with claims that are all answered with yes.
func (w *whole) answered(b *testing.B, s *sheet, name string, connections int) {
	b.Helper()
	id := w.create(b)
	got := s.load(b, name, w.api, func() wrkResult { return wrk(b, w.api.addr, id, connections, true) })
	require.Zero(b, got.Refused)
	s.add(name+": p50", "ms", float64(got.P50Us)/1000)
	w.store.requireBooked(b, lua.Meta{ID: id}, w.untilDrained(b, id))
}

// fsyncTakes is how long the disk of the files takes for one write that is kept.
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
