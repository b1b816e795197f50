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

// BuildFlags are the flags of the go command that this test was built with,
// for a test that builds a program: nothing is compiled a second time.
func BuildFlags() (flags []string) {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" || s.Key == "-gcflags" {
			flags = append(flags, s.Key+"="+s.Value)
		}
	}
	return flags
}
