//go:build !race

package e2e

// raceDetector reports whether this test was built with the race detector; then
// the processes it starts are, too.
const raceDetector = false
