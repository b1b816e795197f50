package cmd

import (
	"os"
	"runtime/debug"

	"github.com/google/uuid"
)

// gcPercent trades memory for time. A consumer's live heap is some 50 MB,
// much of it stacks of handlers that wait for their flush. At Go's 100 %,
// collection takes a quarter of its processor time (docs/bench.md).
const gcPercent = 400

// Tune is called once, first. Garbage collection runs less often than
// Go's default, unless GOGC is set. Claim ids take random bits from a
// pool instead of one read each.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	uuid.EnableRandPool()
}
