// Package trials has commands that test Dibs on servers of their
// own: lab and torture.
package trials

import (
	"context"

	"dibs/cmd"
)

// Run is cmd.Run with these commands.
func Run(ctx context.Context, env cmd.Env) int {
	env.Trials = []cmd.Constructor{newLab, newLabWorker, newTorture}
	return cmd.Run(ctx, env)
}
