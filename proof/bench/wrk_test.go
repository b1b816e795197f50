package bench_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type wrkResult struct {
	Requests int64 `json:"requests"`
	TookUs   int64 `json:"took_us"`
	Refused  int64 `json:"refused"` // status 400 and above
	Broken   int64 `json:"broken"`  // connections
	P50Us    int64 `json:"p50_us"`
	P99Us    int64 `json:"p99_us"`
}

func (r wrkResult) rate() float64 { return float64(r.Requests) / (float64(r.TookUs) / 1e6) }

// wrkThreads is one: another would only take CPU from the servers.
const wrkThreads = 1

var wrkRuns atomic.Int64

// wrk posts claims to a campaign for a time, each of a new user.
func wrk(b *testing.B, addr, campaign string, connections int, keyed bool) wrkResult {
	b.Helper()
	return wrkFor(b, wrkSpan(), addr, campaign, connections, keyed)
}

// wrkFor is wrk for another time; more is a file of users and their tokens.
func wrkFor(b *testing.B, span, addr, campaign string, connections int, keyed bool, more ...string) wrkResult {
	b.Helper()
	mode := "unkeyed"
	if keyed {
		mode = "keyed"
	}
	cmd := exec.CommandContext(longAfter(b), tool(b, "wrk", "wrk"),
		append([]string{
			"-t", strconv.Itoa(wrkThreads), "-c", strconv.Itoa(connections), "-d", span, "-s", "testdata/claim.lua",
			"http://" + addr + "/v1/campaigns/" + campaign + "/claims", "--", fmt.Sprintf("user-%d-", wrkRuns.Add(1)), mode,
		}, more...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, string(out))
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var r wrkResult
	require.NoError(b, json.Unmarshal(lines[len(lines)-1], &r), string(out))
	require.Zero(b, r.Broken, string(out))
	require.Positive(b, r.Requests, string(out))
	return r
}

// wrkSpan is in whole seconds, as wrk requires.
func wrkSpan() string {
	seconds := int(span(3*time.Second) / time.Second)
	return strconv.Itoa(max(1, seconds)) + "s"
}

// longSpan is of loads beside other work.
func longSpan() string { return fmt.Sprintf("%.0fs", max(1, span(10*time.Second).Seconds())) }

func wrkVersion(b *testing.B) string {
	b.Helper()
	// it exits with 1
	out, _ := exec.CommandContext(b.Context(), tool(b, "wrk", "wrk"), "-v").CombinedOutput()
	version, _, _ := strings.Cut(string(out), " [")
	version = strings.TrimPrefix(strings.TrimSpace(version), "wrk ")
	return "wrk " + strings.TrimPrefix(version, "debian/")
}
