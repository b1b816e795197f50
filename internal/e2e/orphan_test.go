package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// orphanMaker makes this test binary, run again, start a dibs, name its address and wait to be killed.
const orphanMaker = "DIBS_E2E_MAKE_ORPHANS"

func TestProcessesDieWithAKilledTestBinary(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMakeOrphans$")
	cmd.Env = append(os.Environ(), orphanMaker+"="+binary(t))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var url string
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		_, url, _ = strings.Cut(lines.Text(), "orphan at ")
	}
	require.True(t, answers(t, url), "control: it runs while its test binary does")

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return !answers(t, url) }, upTimeout, pollEvery)
}

// TestMakeOrphans does nothing unless TestProcessesDieWithAKilledTestBinary runs it.
func TestMakeOrphans(t *testing.T) { //nolint:paralleltest // runs alone, in a process of its own
	if os.Getenv(orphanMaker) == "" {
		return
	}
	_, _ = fmt.Fprintf(os.Stdout, "orphan at %s\n", newProcess(t, "serve", nil).url)
	<-t.Context().Done()
}

func answers(t testing.TB, url string) bool {
	t.Helper()
	quick := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := quick.Get(url + "/healthz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return true
}
