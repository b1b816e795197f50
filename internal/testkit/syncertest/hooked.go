package syncertest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
)

// Hooks are called with the name of each command, in lower case, or of its
// script. For a pipeline it is "pipeline " and the name of its first command.
type Hooks struct {
	Before func(name string) error // an error replaces the reply: nothing is sent
	After  func(name string)
}

// Hooked returns Dibs' scripts on their own client, with hooks
// around commands.
func Hooked(t testing.TB, rdb *redis.Client, opts lua.Options, hooks Hooks) *lua.Scripts {
	t.Helper()
	client := redis.NewClient(rdb.Options())
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	names := make(map[any]string)
	for _, name := range []string{"claim", "load", "adjust", "state", "fence", "evict", "push", "release", "debit", "credit"} {
		names[redis.NewScript(lua.Source(name)).Hash()] = name
	}
	scripts, err := lua.New(client, opts)
	require.NoError(t, err)
	require.NoError(t, scripts.Preload(t.Context())) // otherwise a script is sent as text once
	client.AddHook(hooked{hooks, names})
	return scripts
}

// Without returns scripts over a Redis that never gets the given one.
func (h *Stack) Without(script string) *lua.Scripts {
	h.T.Helper()
	return Hooked(h.T, h.Redis, lua.Options{}, Hooks{Before: func(name string) error {
		if name == script {
			return redis.ErrPoolTimeout // means not sent
		}
		return nil
	}})
}

type hooked struct {
	Hooks

	names map[any]string // scripts by digest
}

func (hooked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hooked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.around("", cmd, func() error { return next(ctx, cmd) })
	}
}

func (h hooked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.around("pipeline ", cmds[0], func() error { return next(ctx, cmds) })
	}
}

func (h hooked) around(name string, cmd redis.Cmder, send func() error) error {
	script, isScript := h.names[cmd.Args()[min(1, len(cmd.Args())-1)]]
	if isScript {
		name += script
	} else {
		name += cmd.Name()
	}
	if h.Before != nil {
		if err := h.Before(name); err != nil {
			cmd.SetErr(err)
			return err
		}
	}
	if h.After != nil {
		defer h.After(name)
	}
	return send()
}
