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

// cpuOf is the processor time that a process has used so far, in the 10 ms
// steps of Linux; 0 elsewhere. What a request costs in processor time says more
// than its rate when others use the machine too.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, found := strings.Cut(string(stat), ") ") // behind the name, which may hold anything
	fields := strings.Fields(rest)
	require.True(b, found && len(fields) > 13, string(stat))
	user, err := strconv.Atoi(fields[11])
	require.NoError(b, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// perClaim is a share of time in microseconds.
func perClaim(d time.Duration, claims int64) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(claims)
}

// loadBefore is how many processes wanted a core in the minute before, on
// Linux; 0 elsewhere.
func loadBefore() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// noteLoad says so when the machine had other things to do.
func (s *sheet) noteLoad(load float64) {
	if len(s.Ratios) > 0 && load > float64(runtime.NumCPU())/2 {
		s.note(fmt.Sprintf("**Measured on a busy machine** (load %.1f before the run): rates are low and ratios are noise; processor time a claim is near the truth.", load))
	}
}
