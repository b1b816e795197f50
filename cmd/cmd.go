// Package cmd is the command line: its grammar and its output. The
// work is in internal/process.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dibs/internal/build"
	"dibs/internal/caller"
	"dibs/internal/config"
)

// Exit codes of every command.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2 // bad usage or configuration
	ExitDrift  = 3 // Redis and MySQL differ
)

var (
	// ErrUsage is wrapped by refusals of the command line.
	ErrUsage = errors.New("usage")
	// ErrDrift means Redis and MySQL differ where they must not.
	ErrDrift = errors.New("cmd: the books differ")
)

// Env is a run's environment.
type Env struct {
	Args           []string
	Environ        []string  // "NAME=value"
	Stdout, Stderr io.Writer // several goroutines write to Stderr
	// Registry gets the metrics; nil creates one for each run.
	Registry *prometheus.Registry
	// Trials make the commands of another program, see proof/trials.
	Trials []Constructor
	// Listening, if not nil, is called with the API's address once it
	// listens.
	Listening func(addr string)
}

// Run runs a command until it ends or ctx does, and returns the exit code.
func Run(ctx context.Context, env Env) int {
	root := newRoot(env)
	root.SetArgs(env.Args)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	addCompletion(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if ended, ok := errors.AsType[endedError](err); ok {
		return ended.code
	}
	printError(env, err)
	return exitCode(err)
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, ErrDrift):
		return ExitDrift
	case errors.Is(err, ErrUsage), errors.Is(err, config.ErrConfig):
		return ExitUsage
	default:
		return ExitFailed
	}
}

func newRoot(env Env) *cobra.Command {
	root := family(cobra.Command{
		Use:   "dibs",
		Short: "A claim engine: first come, first served, never one too many, and the books agree afterwards",
		Long: `Dibs hands out a limited number of things to a crowd that all arrives at once.

Nothing of yours is needed to see it work:

  dibs demo                          a crowd of 20,000 over HTTP for 1,000 units, and the books afterwards
  dibs serve                         every role in one process, on http://127.0.0.1:8080

For real, with DIBS_REDIS_URL and DIBS_MYSQL_DSN set:

  dibs migrate                       bring MySQL's schema up to date
  dibs api | consumer | syncer       one role each, as many of each as you like
  dibs finance                       the reference finance service: credits what packets gave
  dibs webhooks                      events, posted to your endpoints

To find out whether it holds what it promises:

  dibs torture                       a Dibs of its own under faults at random, every claim checked afterwards

Completion for your shell: 'dibs completion bash|zsh|fish --help'.`,
		Version:      build.Of().String(),
		SilenceUsage: true, SilenceErrors: true,
	})
	root.SetFlagErrorFunc(badFlag)
	root.SetUsageFunc(usage)
	root.SetHelpCommand(newHelp(root))
	root.AddCommand(newDemo(env), newServe(env), newAPI(env), newConsumer(env), newSyncer(env), newReconcile(env), newParkedClaims(env))
	root.AddCommand(newArchive(env), newFinance(env), newWebhooks(env), newGroups(env), newSettlement(env))
	root.AddCommand(newMigrate(env), newGrants(env), newConfig(env), newBench(env))
	root.AddCommand(trials(env)...)
	root.AddCommand(newAudit(env), newToken(env), newHealthcheck(env), newVersion())
	root.AddCommand(newCampaign(env), newClaim(env), newRedeem(env), newRelease(env), newReopen(env), newExtend(env),
		newWatch(env), newTail(env))
	root.AddCommand(newPackets(env), newClaims(env), newLedger(env))
	settings := settingFlags()
	for _, command := range root.Commands() {
		switch command.Name() {
		case "version": // it needs none
		case "demo":
			addSettings(command, settingFlags())
			command.Flags().Lookup("console").NoOptDefVal = "on" // `dibs demo --console`
		default:
			addSettings(command, settings)
		}
	}
	decimalFlags(root)
	env.complete(root)
	return root
}

func settingFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	config.AddFlags(flags)
	return flags
}

// addSettings adds the settings' flags to a command and its subcommands,
// but for those that a command has itself, such as bench's --url. Only one
// command runs, so all share them.
func addSettings(c *cobra.Command, settings *pflag.FlagSet) {
	c.Flags().AddFlagSet(settings)
	for _, below := range c.Commands() {
		addSettings(below, settings)
	}
}

// command adds what all commands share: arguments are checked against
// Use, and settings are read before the run.
func command(env Env, c cobra.Command, run func(ctx context.Context, c *cobra.Command, cfg *config.Config) error) *cobra.Command {
	if c.Args == nil {
		c.Args = asUsed
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(env.Environ, c.Flags())
		if err != nil {
			return err
		}
		return run(caller.With(c.Context(), &caller.Caller{Actor: operator()}), c, cfg)
	}
	return &c
}

// family is a command that only has subcommands.
func family(c cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs // else cobra refuses an unknown command in its own words
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return unknownCommand(c, args[0])
	}
	c.AddCommand(below...)
	return &c
}

func must(flag string, isFine bool, what string, value any) error {
	if isFine {
		return nil
	}
	return usagef("%s must be %s, not %v", flag, what, value)
}

func between[N int | int64](flag string, n, least, most N) error {
	return must(flag, n >= least && n <= most, fmt.Sprintf("%d to %d", least, most), n)
}

// newLogger writes to stderr, because stdout is for a command's answer.
func newLogger(cfg *config.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.LogLevel)) // config has checked it
	opts := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, opts)
	if cfg.LogFormat == "json" {
		handler = slog.NewJSONHandler(w, opts)
	}
	return slog.New(caller.LogHandler(handler))
}
