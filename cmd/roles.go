package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"dibs/internal/config"
	"dibs/internal/process"
)

func newServe(env Env) *cobra.Command {
	return role(env, cobra.Command{
		Use:   "serve",
		Short: "Run every role in one process; embedded servers when none are configured",
		Long: `Runs API, consumer and syncer in one process. With embedded servers it is the finance
service as well, as no one else could read the embedded streams; beside real ones run
'dibs finance', or a service of your own in that group.`,
		Example: `  dibs serve
  DIBS_REDIS_URL=redis://127.0.0.1:6379 DIBS_MYSQL_DSN='dibs:secret@tcp(127.0.0.1:3306)/dibs' dibs serve`,
	})
}

func newAPI(env Env) *cobra.Command {
	return role(env, cobra.Command{
		Use:     "api",
		Short:   "Run the HTTP API: campaigns, claims, stock",
		Example: "  dibs api --http-addr 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem",
	})
}

func newConsumer(env Env) *cobra.Command {
	return role(env, cobra.Command{
		Use:     "consumer",
		Short:   "Run the consumer: from the claim streams into MySQL, in batches",
		Example: "  dibs consumer --name consumer-1 --metrics-addr 127.0.0.1:9091",
	})
}

func newSyncer(env Env) *cobra.Command {
	return role(env, cobra.Command{
		Use:     "syncer",
		Short:   "Run the syncer: complete changes of campaigns, evict idle ones, trim the streams",
		Example: "  dibs syncer --groups syncer,finance",
	})
}

// role is a command that runs until it is stopped.
func role(env Env, c cobra.Command) *cobra.Command {
	return command(env, c, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		return process.Run(ctx, c.Name(), env.process(cfg))
	})
}

func (env Env) process(cfg *config.Config) process.Options {
	return process.Options{
		Config: cfg, Logger: newLogger(cfg, env.Stderr), Environ: env.Environ, Registry: env.Registry, Listening: env.Listening,
	}
}

// withServers is a command that needs real servers.
func withServers(env Env, c cobra.Command, run func(context.Context, *process.Stack) error) *cobra.Command {
	return command(env, c, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		if err := process.NeedsServers(cfg, c.CommandPath()); err != nil {
			return err
		}
		return withStack(ctx, env.process(cfg), run)
	})
}

// withBooks is a command that needs the finance service's servers.
func withBooks(env Env, c cobra.Command, run func(context.Context, *process.Stack) error) *cobra.Command {
	return command(env, c, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		o := env.process(cfg)
		o.IsFinance = true
		return withStack(ctx, o, run)
	})
}

func withStack(ctx context.Context, o process.Options, run func(context.Context, *process.Stack) error) error {
	s, err := process.Open(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	return run(ctx, s)
}
