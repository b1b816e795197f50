package testenv

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"dibs/internal/testkit/machine"
)

// Main is the body of a package's TestMain. It runs the tests,
// stops shared servers, removes their folders, fails the run if
// goroutines other than those in ignore are left, and exits.
func Main(m *testing.M, ignore ...goleak.Option) {
	logging.Disable() // drivers would log each server that a test stops
	_ = mysql.SetLogger(&mysql.NopLogger{})
	code := m.Run()
	machine.End()
	if code == 0 {
		if err := goleak.Find(append(leaksOfOthers(), ignore...)...); err != nil {
			fmt.Fprintf(os.Stderr, "testenv: goroutines left over: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaksOfOthers lists goroutines of others that outlive tests,
// each with its reason.
func leaksOfOthers() []goleak.Option {
	return []goleak.Option{
		// Holds the thread that children are tied to (see
		// spawn_linux.go): must live as long as the process.
		goleak.IgnoreAnyFunction("dibs/internal/testkit/machine.spawnForever"),
		// Polls a killed server, and sleeps a second before it finds its
		// pool closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	}
}

// Close stops shared servers and removes folders, for a program
// without Main. In a test it does nothing.
func Close() {
	if !testing.Testing() {
		machine.End()
	}
}
