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

// durableConnections are those of the aim.
const durableConnections = 200

// benchDurability puts the same load on the API with each durability. Files are on a disk, where the other parts' may be in memory.
func benchDurability(b *testing.B, s *sheet) {
	c := &counters{}
	side := func(name string, r *broker, d lua.Durability) func() {
		api := startChild(b, childAPI, childSettings{RedisURL: r.server.URL(), Durability: d})
		return func() {
			c.broker = r
			c.accepted(b, s, name, api, durableConnections, false)
		}
	}
	memory, syncing := brokerOn(b, testenv.Redis(b)), brokerOn(b, onDisk(b, testenv.Redis, "appendfsync always"))
	eachSecond := brokerOn(b, onDisk(b, testenv.Redis, "appendfsync everysec"))
	s.Facts = []string{memory.version(b), wrkVersion(b), fmt.Sprintf("a fsync of 4 kB takes %s here", fsyncTakes(b))}
	s.takeTurns([]func(){
		side("fast, no file", memory, lua.Fast),
		side("fast, appendfsync everysec", eachSecond, lua.Fast),
		side("fsync, appendfsync always", syncing, lua.Fsync),
	})
	s.ratio(b, "fsync, appendfsync always / fast, no file", "fsync, appendfsync always", "fast, no file", 0.7)
	s.ratio(b, "fsync, appendfsync always / fast, appendfsync everysec", "fsync, appendfsync always", "fast, appendfsync everysec", 0.7)
	s.note(fmt.Sprintf("wrk with one thread posts for %s at a time on %d connections, each claim by a user of its own. No consumer runs.",
		wrkSpan(), durableConnections))
}

// onDisk starts a server whose append-only file is on a disk.
func onDisk(b *testing.B, start func(testing.TB, ...string) *testenv.RedisServer, policy string) *testenv.RedisServer {
	b.Helper()
	return start(b, "appendonly yes", policy, "aof-load-truncated no", "dir "+b.TempDir())
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
