package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"dibs/internal/config"
)

// trialsProgram has the commands that are built from a clone when needed.
const trialsProgram = "dibs/proof/trials/dibs-trials"

// Constructor makes a command.
type Constructor func(Env) *cobra.Command

// endedError is the exit code of a program that has printed its own error.
type endedError struct{ code int }

func (e endedError) Error() string { return fmt.Sprintf("cmd: it ended with exit code %d", e.code) }

// trials are the commands that test Dibs: those of env, or commands
// that build them first.
func trials(env Env) (commands []*cobra.Command) {
	for _, construct := range env.Trials {
		commands = append(commands, construct(env))
	}
	if len(env.Trials) > 0 {
		return commands
	}
	return []*cobra.Command{
		inClone(env, "lab", "Run the ladder of strategies, from a naive counter to Dibs, side by side under one workload (from a clone)"),
		inClone(env, "torture",
			"Make faults happen to a whole Dibs of its own, at random by a seed, and check every claim afterwards (from a clone)"),
	}
}

// inClone is a command that is built from a clone of the project, and
// gets all arguments.
func inClone(env Env, name, short string) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Example: "  dibs " + name + " --help", DisableFlagParsing: true}
	c.RunE = func(c *cobra.Command, args []string) error {
		return runTrials(c.Context(), env, append([]string{name}, args...))
	}
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if err := runTrials(context.Background(), env, []string{name, "--help"}); err != nil {
			c.PrintErrln(err)
		}
	})
	return c
}

func runTrials(ctx context.Context, env Env, args []string) error {
	module, err := exec.CommandContext(ctx, "go", "list", "-m").Output()
	if err != nil || strings.TrimSpace(string(module)) != "dibs" {
		return fmt.Errorf("%w: `dibs %s` is built when it is used and needs Go on PATH,"+
			" a clone of the source tree of Dibs as the current folder, and redis-server and mariadbd on PATH"+
			" (`make servers` installs them). Run it there: go run . %[2]s", ErrUsage, args[0])
	}
	folder, err := os.MkdirTemp("", "dibs-trials-")
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	program := filepath.Join(folder, "dibs-trials")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, trialsProgram) //nolint:gosec // ours
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cmd: build %s: %w\n%s", trialsProgram, err, out)
	}
	run := exec.CommandContext(ctx, program, args...) //nolint:gosec // built above
	run.Env = env.Environ
	run.Stdin = os.Stdin
	run.Stdout = env.Stdout
	run.Stderr = env.Stderr
	// it cleans up after itself
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) }
	err = run.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return endedError{ended.ExitCode()}
	}
	return err
}

// Command makes a command like the program's own, see command.
func Command(env Env, c cobra.Command, run func(context.Context, *cobra.Command, *config.Config) error) *cobra.Command {
	return command(env, c, run)
}
