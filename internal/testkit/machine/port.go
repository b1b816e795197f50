package machine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ports are below every system's range for outgoing connections: a client
// could take a port of that range between a server's Kill and Start.
const (
	portMin   = 12000
	portMax   = 32000
	portTries = 200
)

// errNoPort means that portTries random ports were all in use.
var errNoPort = errors.New("machine: no free port")

// ReservePort returns a free TCP port of 127.0.0.1 that no other
// test binary on this machine picks until release.
func ReservePort() (port int, release func(), err error) {
	locks := filepath.Join(os.TempDir(), "dibs-test-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return 0, nil, fmt.Errorf("machine: reserve a port: %w", err)
	}
	for range portTries {
		port = portMin + rand.IntN(portMax-portMin)
		lock, err := lockFile(filepath.Join(locks, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if portFree(port) {
			return port, func() { _ = lock.Close() }, nil
		}
		_ = lock.Close()
	}
	return 0, nil, errNoPort
}

// Port returns a free TCP port of 127.0.0.1, reserved until the test ends.
func Port(t testing.TB) int {
	t.Helper()
	port, release, err := ReservePort()
	require.NoError(t, err)
	t.Cleanup(release)
	return port
}

func portFree(port int) bool {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", Loopback(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// Loopback returns 127.0.0.1:port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Addr returns a free address of 127.0.0.1, reserved until the test ends.
func Addr(t testing.TB) string {
	t.Helper()
	port, release, err := ReservePort()
	require.NoError(t, err)
	t.Cleanup(release)
	return Loopback(port)
}
