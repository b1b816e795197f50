package testenv

import (
	"os"
	"slices"
	"strings"
)

// Environ is this process's environment without variables of Dibs: programs
// would refuse those of the tests, which are no settings.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(line string) bool { return strings.HasPrefix(line, "DIBS_") })
}
