package cmd

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"dibs/internal/config"
	"dibs/internal/testenv"
	"dibs/proof/load"
)

// What a service says is read to its end, however long a line is: one that is not read blocks who writes it.
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

// child is a service that runs a shell script.
func child(t *testing.T, script string) *service {
	t.Helper()
	s := &service{cmd: exec.Command("sh", "-c", script), exited: make(chan error, 1)}
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // a test that fails leaves nothing running
	ready := make([]byte, 1)
	_, err = io.ReadFull(out, ready)
	require.NoError(t, err)
	go func() { s.exited <- s.cmd.Wait() }()
	return s
}

func TestAServiceIsAskedToEndBeforeItIsKilled(t *testing.T) {
	t.Parallel()
	require.NoError(t, child(t, `trap "exit 0" INT; echo; while :; do sleep 0.01; done`).stop(time.Minute))
	require.ErrorContains(t, child(t, `trap "exit 3" INT; echo; while :; do sleep 0.01; done`).stop(time.Minute), "exit status 3")
	ended := child(t, `echo; exit 0`)
	ended.exited <- <-ended.exited
	require.NoError(t, ended.stop(time.Minute), "one that has ended is what was wanted")
	stubborn := child(t, `trap "" INT; echo; while :; do sleep 0.01; done`)
	started := time.Now()
	require.ErrorContains(t, stubborn.stop(200*time.Millisecond-stopSlack), "killed")
	require.Less(t, time.Since(started), 5*time.Second)
	require.NotNil(t, stubborn.cmd.ProcessState, "nothing is left of it")
}

func TestAServiceThatCannotStartIsAFailureOfTheBench(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(flags)
	environ := append(testenv.Environ(), "DIBS_PARTITIONS=none")
	var problems bytes.Buffer
	_, err := startService(t.Context(), Env{Environ: environ, Stderr: &problems}, flags, &config.Config{ShutdownTimeout: time.Second})
	require.ErrorContains(t, err, "ended before it listened")
	require.Equal(t, ExitFailed, exitCode(err))
	require.Contains(t, problems.String(), "DIBS_PARTITIONS", "it says why")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = startService(ctx, Env{Environ: testenv.Environ(), Stderr: &problems}, flags, &config.Config{ShutdownTimeout: time.Second})
	require.ErrorIs(t, err, context.Canceled)
}

// goldenReport has something in every line of the table.
func goldenReport() load.Report {
	return load.Report{
		URL: "http://127.0.0.1:8080", Servers: "embedded", CampaignID: "bench-1", Sent: 12_000, Unsent: 5, Accepted: 11_000,
		Plan: load.PlanReport{Rate: 1000, Connections: 200}, AchievedRate: 998.6, Late: 7, LateMaxMS: 3.25, Waited: 12,
		Refused: map[string]int64{"sold_out": 900, "paused": 95}, Errors: map[string]int64{"timeout": 5},
		Latency: load.Latency{P50: 1.234, P90: 2, P99: 10.006, P999: 50, Max: 120.5},
		Sync:    load.Lag{Polls: 200, PollFaults: 1, BacklogMax: 1500, AgeMaxMS: 80.6, AgeP99MS: 75.2},
		Books:   load.Books{Agree: true, Claimed: 11_000, SyncedAfterMS: 12.4},
		Ramp: &load.RampReport{P99LimitMS: 10, TopRate: 1250, Hold: 0.8, Steps: []load.Step{
			{Rate: 1000, Reached: 1000, P99MS: 3.1, Held: true}, {Rate: 2000, Reached: 1500.4, P99MS: 99, Reason: "p99"},
		}},
	}
}

const goldenTable = `campaign bench-1 at http://127.0.0.1:8080, servers embedded

tried/s  answered/s  p99 ms  p99 < 10ms
  1,000       1,000    3.10  held
  2,000       1,500   99.00  no: p99

the highest rate that held: 1,250/s

rate asked for /s   1,000
rate achieved /s      999
sent               12,000
never sent              5
accepted           11,000
refused: paused        95
refused: sold_out     900
error: timeout          5
latency p50 ms       1.23
latency p90 ms       2.00
latency p99 ms      10.01
latency p99.9 ms    50.00
latency max ms     120.50

late sends: 7 by the generator itself (at most 3.2 ms), 12 because all 200 connections were busy; both count in the latencies

on the way to the database: at most 1,500 claims, the oldest at most 81 ms old (p99 75 ms), in 200 polls (1 failed)

everything was in the database 12 ms after the last answer
the books agree: 11,000 claims
`

func TestTheTableOfABenchHasEveryFigure(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := goldenReport()
	require.NoError(t, printBench(&out, &r))
	require.Equal(t, goldenTable, out.String())
	out.Reset()
	r.Ramp, r.Unsent, r.Books = nil, 0, load.Books{Wrong: []string{"one", "two"}}
	require.NoError(t, printBench(&out, &r))
	require.NotContains(t, out.String(), "highest rate")
	require.NotContains(t, out.String(), "never sent")
	require.Contains(t, out.String(), "THE BOOKS DO NOT AGREE\n  one\n  two\n")
}
