package bench_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cpuOf is a process's CPU time so far, in Linux's 10 ms steps; 0 elsewhere.
// On a shared machine a request's CPU time says more than its rate.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, found := strings.Cut(string(stat), ") ") // after the name, which may contain anything
	fields := strings.Fields(rest)
	require.True(b, found && len(fields) > 13, string(stat))
	user, err := strconv.Atoi(fields[11])
	require.NoError(b, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

func perClaim(d time.Duration, claims int64) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(claims)
}

// loadBefore is the average number of runnable processes in the
// last minute, on Linux; 0 elsewhere.
func loadBefore() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// noteLoad adds a note if the machine was busy.
func (s *sheet) noteLoad(load float64) {
	if len(s.Ratios) > 0 && load > float64(runtime.NumCPU())/2 {
		s.note(fmt.Sprintf("**Measured on a busy machine** (load %.1f before the run): rates are low and ratios are noise; processor time a claim is near the truth.", load))
	}
}
