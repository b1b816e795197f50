// Package embedded has the servers that Dibs brings along for `dibs demo` and `dibs serve` on a machine that has none:
// a Redis in memory. Nothing of it outlives the process.
package embedded

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Redis is a Redis server in this process, on a free loopback port.
type Redis struct{ server *miniredis.Miniredis }

// StartRedis starts one.
func StartRedis() (*Redis, error) {
	server, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("embedded: redis: %w", err)
	}
	return &Redis{server}, nil
}

// URL is where it listens.
func (r *Redis) URL() string { return "redis://" + r.server.Addr() }

// Close stops it and forgets everything.
func (r *Redis) Close() { r.server.Close() }
