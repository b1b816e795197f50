package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a Redis of our own, without persistence, in a temporary folder.
type redisServer struct {
	port   int
	folder string
	cmd    *exec.Cmd
}

func (r *redisServer) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// startRedis returns when the server answers.
func startRedis(ctx context.Context) (*redisServer, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "dibs-lua-debug-")
	if err != nil {
		return nil, err
	}
	r := &redisServer{port: port, folder: folder}
	words := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
		"--appendonly", "no", "--logfile", "redis.log"}
	r.cmd = exec.Command("redis-server", words...) //nolint:gosec,noctx // our own words; stop ends it
	if err := r.cmd.Start(); err != nil {
		_ = os.RemoveAll(folder)
		return nil, fmt.Errorf("redis-server: %w (`make servers` installs one)", err)
	}
	if err := r.await(ctx); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

func (r *redisServer) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for ctx.Err() == nil {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.addr()); err == nil { // or go-redis logs each refusal
			_ = conn.Close()
			rdb := redis.NewClient(&redis.Options{Addr: r.addr()})
			err := rdb.Ping(ctx).Err()
			_ = rdb.Close()
			if err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("redis-server does not answer")
}

func (r *redisServer) stop() {
	_ = r.cmd.Process.Kill() // it holds nothing that matters
	_ = r.cmd.Wait()
	_ = os.RemoveAll(r.folder)
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // of a TCP listener
}
