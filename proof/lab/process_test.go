package lab

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soon bounds waits of these tests for processes that should end at once.
const soon = time.Minute

func sh(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

func TestAProcessKeepsTheEndOfWhatItSays(t *testing.T) {
	t.Parallel()
	p, err := startProcess(sh(`echo first; i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i+1)); done; echo last >&2`))
	require.NoError(t, err)
	<-p.ended
	require.LessOrEqual(t, len(p.said()), saidMax)
	require.Greater(t, len(p.said()), saidMax/2)
	require.True(t, strings.HasSuffix(p.said(), "last"), "both of its outputs")
	require.NotContains(t, p.said(), "first")
}

func TestAProcessThatWillNotEndIsKilled(t *testing.T) {
	t.Parallel()
	ready := func(p *process) {
		require.Eventually(t, func() bool { return p.said() != "" }, soon, 5*time.Millisecond)
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

// poolOf is workers that run a shell script.
func poolOf(t *testing.T, scripts ...string) pool {
	t.Helper()
	var all pool
	for _, script := range scripts {
		h, err := startWorker(func(args ...string) *exec.Cmd {
			require.Equal(t, []string{WorkerCommand}, args)
			return sh(script)
		})
		require.NoError(t, err)
		all = append(all, h)
	}
	t.Cleanup(func() { _ = all.stop() })
	return all
}

func nothing(int) order { return order{} }

func TestWorkersAnswerEachItsOrder(t *testing.T) {
	t.Parallel()
	const echo = `while read -r line; do echo "{\"in_time\":$(echo "$line" | sed 's/.*"users":\([0-9]*\).*/\1/')}"; done`
	c := poolOf(t, echo, echo, echo)
	for range 3 {
		answers, err := c.send(t.Context(), func(i int) order { return order{Load: &load{Users: 10 + i}} })
		require.NoError(t, err)
		require.Equal(t, []int64{10, 11, 12}, []int64{answers[0].InTime, answers[1].InTime, answers[2].InTime})
	}
	require.NoError(t, c.stop())
	for _, h := range c {
		<-h.process.ended
	}
}

func TestAWorkerThatCannotFollowIsAFailure(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct{ script, words string }{
		"it dies":         {`read -r line; echo "out of luck" >&2; exit 3`, "out of luck"},
		"it says no":      {`read -r line; echo '{"error":"no such thing"}'`, "no such thing"},
		"it talks":        {`read -r line; echo hello`, `"hello\n"`},
		"it has gone":     {`exit 0`, ""},
		"its line is cut": {`read -r line; printf '{"in_time":1'`, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := poolOf(t, one.script)
			if name == "it has gone" {
				<-c[0].process.ended
			}
			_, err := c.send(t.Context(), nothing)
			require.ErrorIs(t, err, errWorker)
			require.ErrorContains(t, err, one.words)
		})
	}
}

func TestWorkersThatAreNotNeededAnyMoreAreKilled(t *testing.T) {
	t.Parallel()
	c := poolOf(t, `while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := c.send(ctx, nothing)
	require.ErrorIs(t, err, context.Canceled)
	<-c[0].process.ended
}

func TestNobodyIsHiredWhenOneCannotStart(t *testing.T) {
	t.Parallel()
	started := 0
	_, err := startPool(func(...string) *exec.Cmd {
		if started++; started == 2 {
			return exec.Command("/no/such/program")
		}
		return sh(`cat`) // ends with its input
	}, 3)
	require.ErrorContains(t, err, "/no/such/program")
	require.Equal(t, 2, started)
}

// A worker follows line after line until its input ends, and says of each what was wrong with it.
func TestAWorkerFollowsLineAfterLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, Work(t.Context(), strings.NewReader("{}\n{\n{\"load\":{}}\n{\"open\":{\"strategy\":\"luck\"}}\n"), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 4)
	require.NotContains(t, lines[0], "error")
	for i, words := range []string{"", "unexpected end", "no strategy", "luck"} {
		require.Contains(t, lines[i], words)
	}
	require.NoError(t, Work(t.Context(), strings.NewReader("{} without an end"), &out), "half an order is none")
}

func TestAServiceThatDoesNotComeUpSaysWhy(t *testing.T) {
	t.Parallel()
	p, err := startProcess(sh(`echo "no such schema" >&2; exit 1`))
	require.NoError(t, err)
	err = awaitReady(t.Context(), "http://127.0.0.1:1", p)
	require.ErrorIs(t, err, errNoServe)
	require.ErrorContains(t, err, "no such schema")
	slow, err := startProcess(sh(`while :; do sleep 0.01; done`))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, awaitReady(ctx, "http://127.0.0.1:1", slow), errNoServe)
	require.NoError(t, slow.stop(soon))
	_, err = serveDibsHTTP(t.Context(), Env{})
	require.ErrorIs(t, err, ErrConfig, "there is no program to start")
}

func TestTheLabsServiceHasNoneOfTheUsersSettings(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"PATH=/bin", "XDIBS_A=1"}, withoutDibs([]string{"PATH=/bin", "DIBS_REDIS_URL=x", "XDIBS_A=1", "DIBS_A="}))
	require.Empty(t, withoutDibs(nil))
}
