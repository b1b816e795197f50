package bench_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchAdder measures the cells between readers and flushes against one cell behind one mutex. They are no business of other packages:
// their own benchmark is run, in a process of its own.
func benchAdder(b *testing.B, s *sheet) {
	name := func(partitions, how string) string { return how + ", readers: " + partitions }
	s.takeTurns([]func(){func() {
		cmd := exec.CommandContext(b.Context(), "go", "test", "-run", "^$", "-bench", "^BenchmarkAdder$", "-benchtime",
			strconv.Itoa(amount(20))+"x", "dibs/syncer/adder")
		out, err := cmd.CombinedOutput()
		require.NoError(b, err, string(out))
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			at := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune("/=- \t", r) })
			if len(fields) < 4 || at[0] != "BenchmarkAdder" {
				continue
			}
			ns, err := strconv.ParseFloat(fields[len(fields)-2], 64)
			require.NoError(b, err, line)
			s.add(name(at[2], at[3]), "ns/claim", ns)
		}
	}})
	for _, partitions := range []string{"1", "2", "12"} {
		s.ratio(b, "one mutex / cells, readers: "+partitions, name(partitions, "mutex"), name(partitions, "cells"), 0)
	}
	s.note("A reader for each partition adds reads of 100 claims, while a flush takes all of it each millisecond. No database.")
}
