package lab

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soon limits the wait for processes that should end at once.
const soon = time.Minute

func sh(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

func TestAProcessThatWillNotEndIsKilled(t *testing.T) {
	t.Parallel()
	ready := func(p *process) {
		require.Eventually(t, func() bool { return p.said.String() != "" }, soon, 5*time.Millisecond)
	}
	stubborn, err := startProcess(sh(`trap "" TERM; echo ready; while :; do sleep 0.01; done`))
	require.NoError(t, err)
	ready(stubborn)
	require.ErrorContains(t, stubborn.stop(100*time.Millisecond), "ready", "what it said last")
	<-stubborn.ended
	willing, err := startProcess(sh(`trap "exit 0" TERM; echo ready; while :; do sleep 0.01; done`))
	require.NoError(t, err)
	ready(willing)
	require.NoError(t, willing.stop(soon))
	require.NoError(t, willing.stop(soon), "one that has ended may be stopped again")
	_, err = startProcess(exec.Command("/no/such/program"))
	require.ErrorContains(t, err, "/no/such/program")
}

func worker(t *testing.T, script string) Self {
	t.Helper()
	return func(args ...string) *exec.Cmd {
		require.Equal(t, []string{WorkerCommand}, args)
		return sh(script)
	}
}

func TestAWorkerThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := work(t.Context(), worker(t, `echo "out of luck" >&2; exit 3`), order{})
	require.ErrorIs(t, err, errWorker)
	require.ErrorContains(t, err, "out of luck")
	_, err = work(t.Context(), worker(t, `kill -9 $$`), order{})
	require.ErrorIs(t, err, errKilled)
	_, err = work(t.Context(), worker(t, `echo hello`), order{})
	require.ErrorContains(t, err, "invalid character")
	_, err = work(t.Context(), func(...string) *exec.Cmd { return exec.Command("/no/such/program") }, order{})
	require.ErrorContains(t, err, "/no/such/program")
}

// A failed worker must end the others, and so must the run's end.
func TestWorkersThatAreNotNeededAnyMoreAreKilled(t *testing.T) {
	t.Parallel()
	oneFails := worker(t, `read -r line; case "$line" in *'"share":1'*) exit 3;; esac; while :; do sleep 0.01; done`)
	_, err := work(t.Context(), oneFails, order{}, order{Share: 1})
	require.ErrorIs(t, err, errWorker)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = work(ctx, worker(t, `while :; do sleep 0.01; done`), order{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestAWorkerRefusesAnOrderThatItCannotFollow(t *testing.T) {
	t.Parallel()
	for o, words := range map[string]string{
		"": "EOF", "{": "EOF", `{"strategy":"luck"}`: "luck", `{"strategy":"watch","redis_url":"x"}`: "redis url",
	} {
		var out strings.Builder
		require.ErrorContains(t, Work(t.Context(), strings.NewReader(o), &out), words)
		require.Empty(t, out.String())
	}
}

func TestAServiceThatDoesNotComeUpSaysWhy(t *testing.T) {
	t.Parallel()
	p, err := startProcess(sh(`echo "no such schema" >&2; exit 1`))
	require.NoError(t, err)
	err = p.awaitReady(t.Context(), "http://127.0.0.1:1")
	require.ErrorIs(t, err, errNoServe)
	require.ErrorContains(t, err, "no such schema")
	slow, err := startProcess(sh(`while :; do sleep 0.01; done`))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, slow.awaitReady(ctx, "http://127.0.0.1:1"), errNoServe)
	require.NoError(t, slow.stop(soon))
}
