package testenv

import (
	"os"
	"slices"
	"strings"
)

// Environ is this process's environment without variables of Dibs: those that
// tests have are no settings, and a program would refuse them.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(line string) bool { return strings.HasPrefix(line, "DIBS_") })
}
