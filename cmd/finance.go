package cmd

import (
	"context"
	"errors"

	"dibs/consumer"
	"dibs/finance"
	"dibs/internal/config"

	"github.com/spf13/cobra"
)

func newFinance(env Env) *cobra.Command {
	c := role(env, cobra.Command{
		Use:   "finance",
		Short: "Run the reference finance service: credit what packets gave, one entry a claim",
		Long: `Reads the claim streams in the consumer group "finance" and keeps the tables accounts and account_entries: what a packet
gave is credited to who took it, what was left over when a campaign closed to its sender, once each, whatever is redelivered.
Coupons move no money and are passed over.

Its database is that of --finance-dsn, or else Dibs' own. While it is away events wait in Redis; they are kept there for every
registered group, see 'dibs groups'. An event that can never be credited is parked with the reason and holds nothing up: see
'dibs finance parked' and 'dibs finance replay'. docs/finance.md tells how to write such a service yourself, in any language.`,
		Example: `  dibs finance --name finance-1 --metrics-addr 127.0.0.1:9093
  DIBS_FINANCE_DSN='books:secret@tcp(10.0.0.7:3306)/books' dibs finance`,
	}, checkMetricsListen, metered((*stack).runFinance), isFinance)
	c.AddCommand(newParked(env), newReplay(env), newDiscard(env))
	return c
}

// isFinance is for the finance service: it needs Redis and its own database.
func isFinance(s *stack) { s.isFinance = true }

// withBooks is a command that works with what the finance service needs.
func withBooks(env Env, c cobra.Command, run func(context.Context, *stack) error) *cobra.Command {
	return command(env, c, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		return withStack(ctx, env, cfg, func(s *stack) error { return run(ctx, s) }, isFinance)
	})
}

func (s *stack) openBooks(ctx context.Context) error {
	setting := "FINANCE_DSN"
	if s.cfg.FinanceDSN == "" {
		setting = "MYSQL_DSN"
	}
	return s.openGated(ctx, setting, s.cfg.BooksDSN(), checkSchema)
}

// checkStreams refuses a number of partitions that would leave streams unread. The number that is recorded is in Dibs'
// database, which the service need not have.
func (s *stack) checkStreams(ctx context.Context) error {
	return s.orLater(ctx, func(ctx context.Context) error {
		return config.RefuseIf(consumer.CheckPartitions(ctx, s.rdb, s.cfg.Partitions), consumer.ErrConfig, "PARTITIONS")
	})
}

// books are the ones that the role and a replay use.
func (s *stack) newBooks() (*finance.Books, error) {
	return finance.NewBooks(finance.Config{
		DB: s.db, BatchSize: min(s.cfg.FlushSize, finance.BatchSizeMax), Interval: s.cfg.FlushInterval, Logger: s.log, Registerer: s.registry,
	})
}

// runFinance credits events until ctx ends, then books what was taken.
func (s *stack) runFinance(ctx context.Context) error {
	if !s.awaitInstallation(ctx) {
		return nil
	}
	books, err := s.newBooks()
	if err != nil {
		return err
	}
	s.log.Info("crediting", "group", finance.Group, "name", s.cfg.Name, "partitions", s.cfg.Partitions)
	service, err := consumer.New(consumer.Config{
		Config: s.reading(finance.Group), Partitions: s.cfg.Partitions, Handle: books.Handle, ReadAhead: s.cfg.ReadAhead,
		Heartbeat: &s.pulse, Tracer: s.tracer,
	})
	if err == nil {
		err = s.withConsumerLease(ctx, finance.Group, service.Run)
	}
	return errors.Join(err, s.closeBooks(ctx, books))
}

func (s *stack) closeBooks(ctx context.Context, books *finance.Books) error {
	closing, cancel := s.drainContext(ctx)
	defer cancel()
	return books.Close(closing)
}
