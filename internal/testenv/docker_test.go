package testenv_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

// fakeDockerLog names the file where the fake docker notes how it was called, and beside which it keeps its state.
const fakeDockerLog = "DIBS_TESTENV_FAKE_DOCKER"

// onlyFakeDocker leaves a test with a PATH that holds nothing but a docker, which is this test binary (see TestMain),
// and returns a function that reads the calls made to it.
func onlyFakeDocker(t *testing.T) (calls func() string) {
	t.Helper()
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "docker")))
	t.Setenv("PATH", bin)
	t.Setenv(fakeDockerLog, log)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else each call of the fake takes a second to exit
	testenv.NothingInstalled(t)
	return func() string {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		return string(text)
	}
}

func TestRedisRunsInDockerWhereItIsNotInstalled(t *testing.T) { //nolint:paralleltest // sets PATH, see onlyFakeDocker
	calls := onlyFakeDocker(t)
	t.Run("a server's life", func(t *testing.T) {
		r := testenv.Redis(t, "appendonly yes", "save 60 1")
		c := r.Client()
		require.NoError(t, c.Ping(t.Context()).Err())
		r.Pause()
		r.Resume()
		require.NoError(t, c.Ping(t.Context()).Err())
		r.Kill()
		require.Error(t, c.Ping(t.Context()).Err())
		r.Start()
		require.NoError(t, c.Ping(t.Context()).Err())
		r.Stop()
		r.Start()
		r.Pause()
		_, port, _ := strings.Cut(r.Addr(), ":")
		require.Contains(t, calls(), " --publish 127.0.0.1:"+port+":6379 redis:7.4-alpine redis-server ")
	})
	all := calls()
	require.Contains(t, all, " --appendonly yes --save 60 1\n", "the test's own lines come last")
	runs, verbs := verbsOf(all)
	require.Len(t, runs, 3)
	require.Equal(t, runs[0], runs[1], "the same name, port and volume, so that data survives")
	require.Equal(t, []string{
		"version", "run", "pause", "unpause", "unpause", "kill KILL", "run", "kill 15", "run", "pause", "unpause", "kill KILL",
		"rm", "volume",
	}, verbs)
}

// verbsOf returns the run lines, and of each call its verb (and the signal of a kill).
func verbsOf(calls string) (runs, verbs []string) {
	for line := range strings.Lines(calls) {
		words := strings.Fields(line)
		verb := words[0]
		switch verb {
		case "run":
			runs = append(runs, line)
		case "kill":
			verb += " " + words[2]
		}
		verbs = append(verbs, verb)
	}
	return runs, verbs
}

func TestMissingServersAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	testenv.NothingInstalled(t)
	redis, sql := testenv.StartErrors()
	for _, err := range []error{redis, sql} {
		require.ErrorContains(t, err, "make servers")
		require.NotContains(t, err.Error(), "\n", "one sentence")
	}
	require.ErrorContains(t, redis, "redis-server is not installed")
	require.ErrorContains(t, sql, "mariadbd")
}

func TestSilentDockerEngineCountsAsNone(t *testing.T) {
	calls := onlyFakeDocker(t)
	t.Setenv("DOCKER_HOST", "nobody")
	redis, sql := testenv.StartErrors()
	require.ErrorContains(t, redis, "make servers")
	require.ErrorContains(t, sql, "make servers")
	require.NotContains(t, calls(), "run")
}

// fakeDocker does what the docker client does for the few commands used, with a miniredis for every image.
func fakeDocker(args []string, log string) int {
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	_, _ = fmt.Fprintln(f, strings.Join(args, " "))
	_ = f.Close()
	pidFile := func(name string) string { return filepath.Join(filepath.Dir(log), name+".pid") }
	last := args[len(args)-1]
	switch args[0] {
	case "version":
		return len(os.Getenv("DOCKER_HOST"))
	case "run":
		return fakeRun(args, pidFile)
	case "pause":
		return fakeSignal(pidFile(last), syscall.SIGSTOP)
	case "unpause":
		return fakeSignal(pidFile(last), syscall.SIGCONT)
	case "kill":
		sig := syscall.SIGTERM
		if args[2] == "KILL" {
			sig = syscall.SIGKILL
		}
		return fakeSignal(pidFile(last), sig)
	default: // rm, volume rm
		return 0
	}
}

func fakeRun(args []string, pidFile func(string) string) int {
	name := args[slices.Index(args, "--name")+1]
	published := strings.Split(args[slices.Index(args, "--publish")+1], ":")
	if err := os.WriteFile(pidFile(name), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return 1
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(published[0] + ":" + published[1]); err != nil {
		return 1
	}
	<-ended
	m.Close()
	return 0
}

func fakeSignal(pidFile string, sig syscall.Signal) int {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return 1
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || syscall.Kill(pid, sig) != nil {
		return 1
	}
	return 0
}

// TestDockerRealEngine runs a server in a real container where an engine answers; elsewhere the fake above has to do.
func TestDockerRealEngine(t *testing.T) {
	path, err := exec.LookPath("docker")
	if err != nil || exec.CommandContext(t.Context(), path, "version").Run() != nil {
		t.Log("no Docker engine here: the container launcher was tested with a stand-in only")
		return
	}
	bin := t.TempDir()
	require.NoError(t, os.Symlink(path, filepath.Join(bin, "docker")))
	t.Setenv("PATH", bin)
	testenv.NothingInstalled(t)
	r := testenv.Redis(t, "appendonly yes")
	require.NoError(t, r.Client().Set(t.Context(), "k", "v", 0).Err())
	r.Kill()
	r.Start()
	require.Len(t, r.Dump(t.Context()), 1)
	db := open(t, testenv.SQLServer(t).DSN("books"))
	mustExec(t, db, "CREATE TABLE x (id INT PRIMARY KEY)")
}
