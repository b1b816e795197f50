package testenv

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// Main is the body of a package's TestMain. It runs the tests,
// stops shared servers, removes their folders, fails the run if
// goroutines other than those in ignore are left, and exits.
func Main(m *testing.M, ignore ...goleak.Option) {
	logging.Disable() // drivers would log each server that a test stops
	_ = mysql.SetLogger(&mysql.NopLogger{})
	code := m.Run()
	shared.closeAll()
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
		goleak.IgnoreAnyFunction("dibs/internal/testenv.spawnForever"),
		// Polls a killed server, and sleeps a second before it finds its
		// pool closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	}
}

// shared holds what lives as long as the test binary.
var shared closers

// closers runs functions once, in reverse order.
type closers struct {
	mu  sync.Mutex
	fns []func()
}

func (c *closers) add(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fns = append(c.fns, fn)
}

func (c *closers) closeAll() {
	c.mu.Lock()
	fns := c.fns
	c.fns = nil
	c.mu.Unlock()
	for _, fn := range slices.Backward(fns) {
		fn()
	}
}

// Close stops shared servers and removes folders, for a program
// without Main. In a test it does nothing.
func Close() {
	if !testing.Testing() {
		shared.closeAll()
	}
}
