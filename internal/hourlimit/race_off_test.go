//go:build !race

package hourlimit_test

// raceEnabled tells whether this test was built with the race detector.
const raceEnabled = false
