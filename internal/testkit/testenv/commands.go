package testenv

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Commands is a Redis client hook that records command names.
type Commands struct {
	mu    sync.Mutex
	names map[string]bool
}

// Sent returns the recorded names, sorted; those of XGROUP, XINFO and MEMORY
// with their second word. Commands sent on connect are left out.
func (c *Commands) Sent() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (c *Commands) note(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range cmds {
		name := cmd.Name()
		switch name {
		case "hello", "client":
			continue
		case "xgroup", "xinfo", "memory":
			second, _ := cmd.Args()[1].(string)
			name += " " + strings.ToLower(second)
		}
		if c.names == nil {
			c.names = make(map[string]bool)
		}
		c.names[name] = true
	}
}

// DialHook implements redis.Hook.
func (c *Commands) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (c *Commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.note(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *Commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.note(cmds...)
		return next(ctx, cmds)
	}
}
