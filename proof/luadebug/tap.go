package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errHeard replaces the reply of an intercepted call.
var errHeard = errors.New("luadebug: heard")

type call struct {
	path       string
	keys, args []string
}

func (c *call) cliArgs() []string {
	all := append([]string{"--ldb", "--eval", c.path}, c.keys...)
	return append(append(all, ","), c.args...)
}

// hasZero reports whether an argument contains a byte 0, which
// no command line can.
func (c *call) hasZero() bool { return strings.Contains(strings.Join(c.args, ""), "\x00") }

// tap is a hook that, once open, intercepts one script's calls
// and keeps the last.
type tap struct {
	source string
	open   bool
	heard  bool
	call   call
}

// DialHook changes nothing.
func (t *tap) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook intercepts a pipeline with the script.
func (t *tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, t.hears) {
			return errHeard
		}
		return next(ctx, cmds)
	}
}

// ProcessHook intercepts the script.
func (t *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if t.hears(cmd) {
			return errHeard
		}
		return next(ctx, cmd)
	}
}

// hears intercepts a command if it calls the script and the tap
// is open, and reports whether it did.
func (t *tap) hears(cmd redis.Cmder) bool {
	all := cmd.Args()
	if !t.open || cmd.Name() != "evalsha" || all[1] != redis.NewScript(t.source).Hash() {
		return false
	}
	t.heard = true
	t.call = callIn(all)
	cmd.SetErr(errHeard)
	return true
}

// callIn parses EVALSHA digest n key… arg….
func callIn(all []any) call {
	n, _ := all[2].(int)
	words := make([]string, 0, len(all)-3)
	for _, word := range all[3:] {
		if raw, ok := word.([]byte); ok {
			word = string(raw)
		}
		words = append(words, fmt.Sprint(word))
	}
	return call{keys: words[:n], args: words[n:]}
}
