package bench_test

import (
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchAdder measures the writer's adder at every concurrency and batch that a Sink may meet. The adder is no business of other packages:
// the writer's own benchmark is run, in a process of its own.
func benchAdder(b *testing.B, s *sheet) {
	name := func(batch, handlers, stripes string) string {
		return fmt.Sprintf("batches of %s from %s at a time, stripes: %s", batch, handlers, stripes)
	}
	s.takeTurns([]func(){func() {
		cmd := exec.CommandContext(b.Context(), "go", "test", "-run", "^$", "-bench", "^BenchmarkAdder$", "-benchtime",
			strconv.Itoa(amount(20))+"x", "dibs/syncer/writer")
		out, err := cmd.CombinedOutput()
		require.NoError(b, err, string(out))
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			at := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune("/=- ", r) })
			if len(fields) < 4 || at[0] != "BenchmarkAdder" {
				continue
			}
			ns, err := strconv.ParseFloat(fields[len(fields)-2], 64)
			require.NoError(b, err, line)
			s.add(name(at[2], at[4], at[6]), "ns/claim", ns)
		}
	}})
	many := strconv.Itoa(max(2, runtime.GOMAXPROCS(0)))
	for _, batch := range []string{"1", "16", "512"} {
		for _, handlers := range []string{"1", "4", "16", "32"} {
			s.ratio(b, fmt.Sprintf("1 stripe / %s stripes, batches of %s from %s at a time", many, batch, handlers),
				name(batch, handlers, "1"), name(batch, handlers, many), 0)
		}
	}
	s.note("A handler adds a batch of claims of one campaign to the writer's adder, counters of back-pressure included, while one goroutine empties it. No database.")
}
