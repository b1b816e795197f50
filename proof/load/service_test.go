package load

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A service's log must be read to its end, whatever the length
// of lines: an unread pipe blocks the writer.
func TestTheLogOfAServiceIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	log := strings.Join([]string{
		`{"level":"INFO","msg":"serving"}`,
		`{"level":"WARN","msg":"careful"}`,
		`{"level":"INFO","msg":"listening","url":"http://127.0.0.1:1"}`,
		`{"level":"INFO","msg":"listening","url":"http://127.0.0.1:2"}`,
		`{"level":"INFO","msg":"listening"}`,
		`{"level":"ERROR","msg":"broken"}`,
		`panic: no JSON`,
		`{"level":"INFO","msg":"` + strings.Repeat("x", 1<<20) + `"}`,
		`{"level":"ERROR","msg":"after"}`,
	}, "\n") + "\n"
	var warnings bytes.Buffer
	listening := make(chan string, 1)
	in := strings.NewReader(log)
	readServiceLog(in, &warnings, listening)
	require.Equal(t, "http://127.0.0.1:1", <-listening, "the first; who waits for it wants one")
	require.Equal(t, []string{
		`service: {"level":"WARN","msg":"careful"}`, `service: {"level":"ERROR","msg":"broken"}`, `service: panic: no JSON`,
	}, strings.Split(strings.TrimSpace(warnings.String()), "\n"))
	require.Zero(t, in.Len(), "and then the rest is passed over, unread by nobody")
}

func child(t *testing.T, script string) *Service {
	t.Helper()
	s := &Service{cmd: exec.Command("sh", "-c", script), exited: make(chan error, 1)}
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // a failed test leaves nothing running
	ready := make([]byte, 1)
	_, err = io.ReadFull(out, ready)
	require.NoError(t, err)
	go func() { s.exited <- s.cmd.Wait() }()
	return s
}

func TestAServiceIsAskedToEndBeforeItIsKilled(t *testing.T) {
	t.Parallel()
	require.NoError(t, child(t, `trap "exit 0" INT; echo; while :; do sleep 0.01; done`).Stop(time.Minute))
	require.ErrorContains(t, child(t, `trap "exit 3" INT; echo; while :; do sleep 0.01; done`).Stop(time.Minute), "exit status 3")
	ended := child(t, `echo; exit 0`)
	ended.exited <- <-ended.exited
	require.NoError(t, ended.Stop(time.Minute), "one that has ended is what was wanted")
	stubborn := child(t, `trap "" INT; echo; while :; do sleep 0.01; done`)
	started := time.Now()
	require.ErrorContains(t, stubborn.Stop(200*time.Millisecond-stopSlack), "killed")
	require.Less(t, time.Since(started), 5*time.Second)
	require.NotNil(t, stubborn.cmd.ProcessState, "nothing is left of it")
}
