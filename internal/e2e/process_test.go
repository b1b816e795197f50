package e2e

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

const (
	upTimeout   = time.Minute     // for a process to answer; busy machines are slow
	downTimeout = time.Minute     // for a process to end; DIBS_SHUTDOWN_TIMEOUT is 15 s
	runTimeout  = 2 * time.Minute // for a command that ends by itself; a demo takes seconds
	pollEvery   = 10 * time.Millisecond
)

// process is a dibs process that can be killed and restarted
// with the same settings.
type process struct {
	t        testing.TB
	command  string // api, consumer, …
	program  string // another binary; "" is this tree's
	settings map[string]string
	url      string // of its HTTP; "" for none
	probe    string // path that returns 200 once it is up
	log      string // output of all its runs

	cmd    *exec.Cmd
	exited <-chan struct{} // closed when the run has ended
}

// newProcess starts `dibs command`, waits until it answers, and
// kills it when the test ends.
func newProcess(t testing.TB, command string, settings map[string]string) *process {
	t.Helper()
	p := makeProcess(t, command, settings)
	p.start()
	p.awaitUp()
	return p
}

// makeProcess is newProcess without the start.
func makeProcess(t testing.TB, command string, settings map[string]string) *process {
	t.Helper()
	p := &process{t: t, command: command, settings: map[string]string{"GORACE": "exitcode=66 atexit_sleep_ms=50"}}
	maps.Copy(p.settings, settings)
	addr := machine.Addr(t)
	p.url = "http://" + addr
	switch command {
	case "api", "serve":
		p.settings["DIBS_HTTP_ADDR"], p.probe = addr, "/readyz"
	default:
		p.settings["DIBS_METRICS_ADDR"], p.probe = addr, "/healthz"
	}
	p.log = filepath.Join(t.TempDir(), command+".log")
	t.Cleanup(p.end)
	return p
}

// start starts a run without waiting for a reply.
func (p *process) start() {
	p.t.Helper()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(p.t, err)
	defer func() { _ = out.Close() }()
	program := p.program
	if program == "" {
		program = binary(p.t)
	}
	cmd := exec.Command(program, p.command)
	cmd.Env = environ(p.settings)
	cmd.Stdout, cmd.Stderr = out, out
	p.cmd, p.exited = cmd, spawn(p.t, cmd)
}

// spawn starts a command that ends with this process at the latest. exited is
// closed when it has ended, see cmd.ProcessState.
func spawn(t testing.TB, cmd *exec.Cmd) (exited <-chan struct{}) {
	t.Helper()
	require.NoError(t, machine.Spawn(cmd, syscall.SIGKILL))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	return ended
}

// awaitUp waits until the process answers.
func (p *process) awaitUp() {
	p.t.Helper()
	deadline := time.After(upTimeout)
	for !p.answers() {
		select {
		case <-p.exited:
			require.FailNow(p.t, "dibs "+p.command+" ended at once", p.cmd.ProcessState.String()+"\n"+p.tail())
		case <-deadline:
			require.FailNow(p.t, "dibs "+p.command+" does not answer", p.tail())
		case <-time.After(pollEvery):
		}
	}
}

func (p *process) answers() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+p.probe, http.NoBody)
	require.NoError(p.t, err)
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// kill9 ends the process like a crash.
func (p *process) kill9() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Kill())
	p.awaitEnd()
}

// stop ends the process like an orchestrator, and expects exit code 0.
func (p *process) stop() {
	p.t.Helper()
	p.stopBy(syscall.SIGTERM)
}

func (p *process) stopBy(signal os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(signal))
	p.awaitEnd()
	require.Zero(p.t, p.cmd.ProcessState.ExitCode(), "dibs %s after %s: %s\n%s", p.command, signal, p.cmd.ProcessState, p.tail())
}

// restart restarts an ended process and waits until it answers.
func (p *process) restart() {
	p.t.Helper()
	p.start()
	p.awaitUp()
}

func (p *process) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(downTimeout):
		require.FailNow(p.t, "dibs "+p.command+" does not end", p.tail())
	}
}

// end is the cleanup: it kills the process and shows the log of
// a failed test.
func (p *process) end() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
	text := p.output()
	if strings.Contains(text, "WARNING: DATA RACE") {
		p.t.Errorf("dibs %s has a data race:\n%s", p.command, text)
	} else if p.t.Failed() {
		p.t.Logf("dibs %s at %s said:\n%s", p.command, p.url, p.tail())
	}
}

func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Errorf("log of dibs %s: %v", p.command, err)
	}
	return string(text)
}

func (p *process) tail() string {
	const most = 6000
	text := p.output()
	if len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}

// outcome is how a dibs command ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// runDibs runs a dibs command to its end, with only these settings.
func runDibs(t testing.TB, settings map[string]string, args ...string) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	path := binary(t)
	// one that should refuse may serve instead
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environ(settings)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	<-spawn(t, cmd)
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func eventually(t testing.TB, within time.Duration, otherwise string, so func() bool) {
	t.Helper()
	require.Eventually(t, so, within, 50*time.Millisecond, otherwise)
}

// metric reads a metric without labels; 0 if missing.
func metric(t testing.TB, url, name string) float64 {
	t.Helper()
	res, err := client.Get(url + "/metrics")
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	require.NoError(t, err, "%s %s", name, found[1])
	return value
}
