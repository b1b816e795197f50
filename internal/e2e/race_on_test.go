//go:build race

package e2e

// raceDetector reports whether this test, and so its processes,
// are built with the race detector.
const raceDetector = true
