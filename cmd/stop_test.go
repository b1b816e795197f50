package cmd_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
)

// TestSignalsEndAServiceWell: a process of its own, as an orchestrator and as a person at a terminal ends it.
func TestSignalsEndAServiceWell(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(fmt.Sprint(signal), func(t *testing.T) {
			t.Parallel()
			folder, addr := t.TempDir(), testenv.Addr(t)
			said := &testenv.Buffer{}
			child := exec.Command(self, "serve")
			child.Env = []string{"DIBS_HTTP_ADDR=" + addr, "DIBS_DATA_DIR=" + folder, "DIBS_SHUTDOWN_TIMEOUT=10s", "GORACE=exitcode=66"}
			child.Stdout, child.Stderr = said, said
			require.NoError(t, child.Start())
			r := &running{t: t, url: "http://" + addr, problems: said}
			require.Eventually(t, func() bool { return r.answers(r.url) }, within, 10*time.Millisecond, said)
			r.post("/campaigns", coupon)
			r.claim("spring", "ada")
			started := time.Now()
			require.NoError(t, child.Process.Signal(signal))
			require.NoError(t, child.Wait(), said)
			require.Less(t, time.Since(started), 10*time.Second)
		})
	}
}

// TestAStopDrainsWhatTheConsumerHasNotRead: the embedded Redis ends with the process, and what only it holds would be lost.
func TestAStopDrainsWhatTheConsumerHasNotRead(t *testing.T) {
	t.Parallel()
	for table, shards := range map[string]int{"campaigns": 1, "campaign_shards": 3} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			stopAndDrain(t, table, shards)
		})
	}
}

func stopAndDrain(t *testing.T, table string, shards int) {
	t.Helper()
	folder := t.TempDir()
	environ := []string{"DIBS_DATA_DIR=" + folder, "DIBS_FLUSH_SIZE=25", "DIBS_SHUTDOWN_TIMEOUT=1m"}
	serve := start(t, environ, "serve")
	serve.post("/campaigns", fmt.Sprintf(`{"id":"spring","kind":"coupon","total":1000000,"shards":%d}`, shards))
	var batch []string
	for i := range 1_000 {
		batch = append(batch, fmt.Sprintf(`{"campaign_id":"spring","user_id":"u%d","idempotency_key":"k%d"}`, i, i))
	}
	require.Eventually(t, func() bool { // a busy machine may take longer to load the campaign than a claim waits
		got := serve.post("/claims:batch", `{"claims":[`+strings.Join(batch, ",")+`]}`) // more than the consumer takes at once
		return !strings.Contains(got.body, `"problem"`)
	}, within, time.Millisecond)
	got := serve.stop()
	require.Equal(t, cmd.ExitOK, got.code, got.stderr)
	require.NotContains(t, got.stderr, "level=ERROR")
	file, err := sql.Open("sqlite", filepath.Join(folder, "dibs.db"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	var rows, synced int64
	require.NoError(t, file.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM claims").Scan(&rows))
	require.NoError(t, file.QueryRowContext(t.Context(), "SELECT SUM(synced_seq) FROM "+table).Scan(&synced))
	require.Equal(t, []int64{1_000, 1_000}, []int64{rows, synced})
}

// TestAStopBeforeTheStartIsNoFailure: a role that is told to end while it still connects ends, soon and well. A command that was to
// find something out has not done so.
func TestAStopBeforeTheStartIsNoFailure(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for command, want := range map[string]int{
		"serve": cmd.ExitOK, "api": cmd.ExitOK, "consumer": cmd.ExitOK, "syncer": cmd.ExitOK, "finance": cmd.ExitOK,
		"reconcile": cmd.ExitFailed, "migrate": cmd.ExitFailed, "finance parked": cmd.ExitFailed,
	} {
		said := &testenv.Buffer{}
		args := append(strings.Fields(command), "--http-addr", testenv.Addr(t))
		code := cmd.Run(ctx, cmd.Env{Args: args, Environ: s.environ, Stdout: said, Stderr: said})
		require.Equal(t, want, code, "%s\n%s", command, said)
		code = cmd.Run(ctx, cmd.Env{Args: append(args, "--partitions=0"), Environ: s.environ, Stdout: said, Stderr: said})
		require.Equal(t, cmd.ExitUsage, code, "%s: a mistake is one all the same", command)
	}
}
