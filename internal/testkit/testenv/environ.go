package testenv

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// Environ is this process's environment without variables of Dibs: programs
// would refuse those of the tests, which are no settings.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(line string) bool { return strings.HasPrefix(line, "DIBS_") })
}

// GoArgs are the arguments of a go command that builds as this test was built,
// with the race detector or without. The Makefile's other flags are in the
// environment, so nothing is compiled twice.
func GoArgs(command string, args ...string) []string {
	all := []string{command}
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			all = append(all, s.Key+"="+s.Value)
		}
	}
	return append(all, args...)
}
