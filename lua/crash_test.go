package lua_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
)

// A crash during a write leaves half of a transaction in the file. It
// must not be restored among later claims.
func TestHalfAWriteIsCutOffAndNeverComesBack(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, "appendonly yes", "appendfsync always", "aof-load-truncated no")
	events, repairs := tornOnce(t, server)
	require.Equal(t, 1, repairs, "the server did not load half a write by itself")
	require.Equal(t, []int64{1, 2}, events)
}

// tornOnce claims, and cuts the file within the second claim's
// transaction. Then it claims and crashes again, and returns the seq of
// the events in the stream.
func tornOnce(t *testing.T, server *testenv.RedisServer) (seqs []int64, repairs int) {
	t.Helper()
	b := newBundle(t, connect(t, server.URL()), nil)
	b.claim(want("first", 1, ""))
	b.claim(want("torn", 1, ""))
	dir := b.rdb.ConfigGet(t.Context(), "dir").Val()["dir"]
	server.Kill()
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.NoError(t, os.Truncate(files[0], info.Size()-int64(len("*1\r\n$4\r\nEXEC\r\n"))-5))
	repairs = server.StartRepaired()
	b.rdb = connect(t, server.URL())
	b.s = b.scripts()
	b.claim(want("second", 1, ""))
	server.Kill()
	server.Start()
	b.rdb = connect(t, server.URL())
	for _, e := range b.events() {
		seqs = append(seqs, e.Seq)
	}
	return seqs, repairs
}
