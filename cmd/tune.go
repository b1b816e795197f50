package cmd

import (
	"os"
	"runtime/debug"

	"github.com/google/uuid"
)

// gcPercent trades memory for time: a consumer's live heap is some 50 MB, much
// of it the stacks of handlers that wait for their flush, and collecting it at
// Go's 100 % is a quarter of its processor time (docs/bench.md).
const gcPercent = 400

// Tune is called once, before anything else runs: the garbage collector runs
// less often than Go's default, unless GOGC in the environment says how often,
// and claim ids take their random bits from a pool instead of one read each.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	uuid.EnableRandPool()
}
