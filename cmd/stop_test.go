package cmd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
)

// A separate process is ended as an orchestrator and as a person at a
// terminal do it.
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

// A role that is stopped while it still connects must end soon and
// without failure. A command that had something to find out must fail.
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
