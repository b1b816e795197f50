package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
)

// ErrNoServer says what to install.
var ErrNoServer = errors.New("lab: a server is missing")

const (
	redisHelp = "redis-server is not on PATH: install Redis 7 or newer (Debian and Ubuntu: redis-server; Homebrew: redis), " +
		"or set DIBS_REDIS_URL"
	mysqlHelp = "mariadbd is not on PATH: install MariaDB 10.6 or newer (Debian and Ubuntu: mariadb-server; Homebrew: mariadb), " +
		"or set DIBS_MYSQL_DSN"
	serverStartMax = 90 * time.Second
	serverStopMax  = 30 * time.Second
	installMax     = 2 * time.Minute
)

// servers are a Redis and a MySQL: the ones that were given, or ones of the lab's own in a temporary folder.
type servers struct {
	place   Place
	closers []func() error
}

// close stops what was started and removes what it wrote, last first.
func (s *servers) close() error {
	var errs []error
	for _, closeOne := range slices.Backward(s.closers) {
		errs = append(errs, closeOne())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// openServers starts the servers of which p has no address.
func openServers(ctx context.Context, p Place) (*servers, error) {
	s := &servers{place: p}
	if p.RedisURL != "" && p.MySQLDSN != "" {
		return s, nil
	}
	folder, err := os.MkdirTemp("", "dibs-lab-")
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	s.closers = append(s.closers, func() error { return os.RemoveAll(folder) })
	if p.RedisURL == "" {
		err = s.startRedis(ctx, folder)
	}
	if err == nil && p.MySQLDSN == "" {
		err = s.startMariaDB(ctx, folder)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// startRedis starts a Redis that keeps everything in memory, as Dibs' durability "fast" supposes at the least.
func (s *servers) startRedis(ctx context.Context, folder string) error {
	program, err := program("redis-server", redisHelp)
	if err != nil {
		return err
	}
	addr, port, err := freePort(ctx)
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--dir", folder, //nolint:gosec,noctx // a server, for the lab's life
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
	s.place.RedisURL = "redis://" + addr + "/0"
	return s.start(ctx, cmd, func(ctx context.Context) error {
		if err := dialable(ctx, addr); err != nil { // go-redis would log it
			return err
		}
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = rdb.Close() }()
		return rdb.Ping(ctx).Err()
	})
}

// startMariaDB starts a MariaDB whose commits are on disk before they are answered.
func (s *servers) startMariaDB(ctx context.Context, folder string) error {
	program, err := program("mariadbd", mysqlHelp)
	if err != nil {
		return err
	}
	data := filepath.Join(folder, "mysql")
	if err := installMariaDB(ctx, data); err != nil {
		return err
	}
	addr, port, err := freePort(ctx)
	if err != nil {
		return err
	}
	args := append([]string{"--no-defaults"}, asRoot()...)
	cmd := exec.Command(program, append(args, "--datadir="+data, "--bind-address=127.0.0.1", "--port="+port, //nolint:gosec,noctx // as above
		"--socket="+filepath.Join(folder, "sock"), "--pid-file="+filepath.Join(folder, "pid"), "--skip-log-bin", "--skip-name-resolve",
		"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=256M", "--performance-schema=OFF", "--max-connections=2100",
		"--character-set-server=utf8mb4")...)
	dsn := mysql.NewConfig()
	dsn.User = "root"
	dsn.Net = "tcp"
	dsn.Addr = addr
	s.place.MySQLDSN = dsn.FormatDSN()
	return s.start(ctx, cmd, func(ctx context.Context) error {
		if err := dialable(ctx, addr); err != nil {
			return err
		}
		db, err := openSQL(s.place.MySQLDSN, 1)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		return db.PingContext(ctx)
	})
}

func installMariaDB(ctx context.Context, data string) error {
	installer, err := program("mariadb-install-db", mysqlHelp)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, installMax)
	defer cancel()
	args := append([]string{"--no-defaults"}, asRoot()...)
	args = append(args, "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	out, err := exec.CommandContext(ctx, installer, args...).CombinedOutput() //nolint:gosec // MariaDB's own program
	if err != nil {
		return fmt.Errorf("lab: create MariaDB's system tables: %w: %s", err, out)
	}
	return nil
}

// asRoot is what MariaDB wants to hear before it runs as root, as it does in containers.
func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// start runs a server and returns when it answers.
func (s *servers) start(ctx context.Context, cmd *exec.Cmd, probe func(context.Context) error) error {
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { return p.stop(serverStopMax) })
	ctx, cancel := context.WithTimeout(ctx, serverStartMax)
	defer cancel()
	for {
		err = probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("lab: %s ended at once: %s", cmd.Path, p.said()) //nolint:err113 // told, not handled
		case <-ctx.Done():
			return fmt.Errorf("lab: %s does not answer: %w: %s", cmd.Path, errors.Join(err, context.Cause(ctx)), p.said())
		case <-time.After(readyPoll):
		}
	}
}

// dialable reports whether someone listens.
func dialable(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// program finds a server program, also where Debian puts it for root alone.
func program(name, help string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, folder := range []string{"/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"} {
		path, err = exec.LookPath(filepath.Join(folder, name))
		if err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNoServer, help)
}

func freePort(ctx context.Context) (addr, port string, err error) {
	addr, err = freeAddr(ctx)
	_, port, _ = strings.Cut(addr, ":")
	if _, bad := strconv.Atoi(port); err == nil && bad != nil {
		err = fmt.Errorf("lab: address %q: %w", addr, bad)
	}
	return addr, port, err
}
