package testenv

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

// errNoRedis means that this machine has no Redis.
var errNoRedis = errors.New("testenv: redis-server is not installed and no Docker engine answers: " +
	"install Redis 7 or newer (Debian and Ubuntu: redis-server; Homebrew: redis), or run `make servers`, which does it")

// redisImage is for machines without a server program. Tests need
// nothing newer.
const redisImage = "redis:7.4-alpine"

// RedisServer is a real Redis on 127.0.0.1. Its methods fail the
// test on errors.
type RedisServer struct {
	control

	addr string
}

// Redis starts the test's own Redis, empty, without persistence, and ends it
// with the test. Each conf is a redis.conf line ("appendonly yes", "maxmemory
// 3mb") that overrides the defaults.
func Redis(t testing.TB, conf ...string) *RedisServer {
	t.Helper()
	return ownRedis(t, "", conf)
}

func ownRedis(t testing.TB, program string, conf []string) *RedisServer {
	t.Helper()
	return newRedis(t, program, conf, nil)
}

// newRedis is ownRedis with environment variables, for a local program.
func newRedis(t testing.TB, program string, conf, env []string) *RedisServer {
	t.Helper()
	srv, addr, closeAll, err := startRedis(program, conf, 0, env...)
	require.NoError(t, err)
	t.Cleanup(func() { closeChecked(t, closeAll) })
	return &RedisServer{control: control{t: t, srv: srv}, addr: addr}
}

// SharedRedis returns the Redis shared by all tests of this binary, without
// persistence. Tests must use their own campaign ids (UniqueID), never flush
// it, and can't Kill, Stop or Pause it.
func SharedRedis(t testing.TB) *RedisServer {
	t.Helper()
	one, err := sharedRedis()
	require.NoError(t, err)
	return &RedisServer{control: control{t: t, srv: one.srv, shared: true}, addr: one.addr}
}

var sharedRedis = sync.OnceValues(func() (*RedisServer, error) {
	srv, addr, closeAll, err := startRedis("", nil, 0)
	if err != nil {
		return nil, err
	}
	machine.AtEnd(func() { _ = closeAll() })
	return &RedisServer{control: control{srv: srv}, addr: addr}, nil
})

// Addr returns host:port.
func (r *RedisServer) Addr() string { return r.addr }

// URL returns a redis:// URL for database 0.
func (r *RedisServer) URL() string { return "redis://" + r.addr + "/0" }

// Client returns a new client, closed at the end of the test. It
// never retries (MaxRetries -1), as is right for scripts that
// write, and respects its context's deadline.
func (r *RedisServer) Client() *redis.Client {
	c := newClient(r.addr)
	r.t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return c
}

// startRedis starts a server in a new folder. program "" is any;
// busPort 0 is no cluster.
func startRedis(program string, conf []string, busPort int, env ...string) (
	srv *machine.Server, addr string, closeAll func() error, err error,
) {
	p, err := machine.NewHome("redis")
	if err != nil {
		return nil, "", nil, err
	}
	at, err := redisHost(p, program, conf, busPort)
	if err != nil {
		p.Remove()
		return nil, "", nil, err
	}
	if own, here := at.(machine.Process); here {
		own.Env = env
		at = own
	}
	addr = machine.Loopback(p.Port)
	srv = &machine.Server{Name: "redis-server", Host: at, Log: p.Log(), Probe: func(ctx context.Context) error { return pingRedis(ctx, addr) }}
	closeAll = func() error { err := srv.Close(); p.Remove(); return err }
	if err := srv.Start(); err != nil {
		return nil, "", nil, errors.Join(err, closeAll())
	}
	return srv, addr, closeAll, nil
}

// redisHost runs the program, for "" an installed redis-server, else Docker.
func redisHost(p machine.Home, program string, conf []string, busPort int) (machine.Host, error) {
	var err error
	if program == "" {
		program, err = machine.FindProgram("redis-server", "valkey-server")
	}
	if err == nil {
		file := filepath.Join(p.Folder, "redis.conf")
		text := redisConf(p.Port, busPort, "127.0.0.1", p.Folder, conf)
		err := os.WriteFile(file, []byte(text), 0o600)
		return machine.Process{Program: program, Args: []string{file}, Folder: dataFolder(p.Folder, conf)}, err
	}
	if machine.DockerAnswers() != nil {
		return nil, errNoRedis
	}
	c := machine.NewContainer(p.Folder, redisImage, p.Port)
	c.Inside = 6379
	c.Data = "/data"
	bind := "0.0.0.0" // inside the container; published on loopback
	if busPort != 0 { // nodes must reach each other by the clients' address
		c.Network = "host"
		c.Inside = p.Port
		bind = "127.0.0.1"
	}
	// Without a mounted file the image takes its configuration on
	// the command line only.
	c.Args = append([]string{"redis-server"}, confArgs(redisConf(c.Inside, busPort, bind, c.Data, conf))...)
	return c, nil
}

// redisConf writes a redis.conf. Persistence is off by default.
// Later lines override earlier ones.
func redisConf(port, busPort int, bind, folder string, conf []string) string {
	lines := []string{
		"port " + strconv.Itoa(port), "bind " + bind, "protected-mode no", "dir " + folder,
		`save ""`, "appendonly no", "maxmemory-policy noeviction", "daemonize no",
	}
	if busPort != 0 {
		lines = append(lines, "cluster-enabled yes", "cluster-port "+strconv.Itoa(busPort), "cluster-node-timeout 2000")
	}
	return strings.Join(append(lines, conf...), "\n") + "\n"
}

func dataFolder(folder string, conf []string) string {
	for _, line := range conf {
		if dir, is := strings.CutPrefix(line, "dir "); is {
			folder = dir
		}
	}
	return folder
}

// confArgs converts redis.conf lines to command line arguments:
// "save 60 1" is --save "60 1".
func confArgs(text string) []string {
	var args []string
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		args = append(args, "--"+key, strings.Trim(value, `"`))
	}
	return args
}

// pingRedis dials first: go-redis would log each refusal while a
// server starts.
func pingRedis(ctx context.Context, addr string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	_ = conn.Close()
	c := newClient(addr)
	defer func() { _ = c.Close() }()
	return c.Ping(ctx).Err() // an error while it loads its data
}

// newClient makes a client that never retries and respects its context.
func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
}
