package process

import (
	"context"
	"errors"

	"dibs/consumer"
	"dibs/finance"
	"dibs/internal/config"
)

func (s *Stack) openBooks(ctx context.Context) error {
	setting := "FINANCE_DSN"
	if s.Config.FinanceDSN == "" {
		setting = "MYSQL_DSN"
	}
	return s.openGated(ctx, setting, s.Config.BooksDSN(), CheckSchema)
}

// checkStreams refuses a number of partitions that would leave streams
// unread. The recorded number is in Dibs' database, which this service may
// lack.
func (s *Stack) checkStreams(ctx context.Context) error {
	return s.orLater(ctx, func(ctx context.Context) error {
		return config.RefuseIf(consumer.CheckPartitions(ctx, s.Redis, s.Config.Partitions), consumer.ErrConfig, "PARTITIONS")
	})
}

// NewBooks makes the books for the role and for a replay.
func (s *Stack) NewBooks() (*finance.Books, error) {
	return finance.NewBooks(finance.Config{
		DB: s.DB, BatchSize: min(s.Config.FlushSize, finance.BatchSizeMax), Interval: s.Config.FlushInterval,
		Logger: s.Logger, Registerer: s.Registry,
	})
}

// runFinance credits events until ctx ends, then credits what it has taken.
func (s *Stack) runFinance(ctx context.Context) error {
	if !s.awaitInstallation(ctx) {
		return nil
	}
	books, err := s.NewBooks()
	if err != nil {
		return err
	}
	s.Logger.Info("crediting", "group", finance.Group, "name", s.Config.Name, "partitions", s.Config.Partitions)
	service, err := consumer.New(consumer.Config{
		Config: s.reading(finance.Group), Partitions: s.Config.Partitions, Handle: books.Handle, ReadAhead: s.Config.ReadAhead,
		Heartbeat: &s.pulse, Tracer: s.tracer,
	})
	if err == nil {
		err = s.named(finance.Group).While(ctx, service.Run)
	}
	return errors.Join(err, s.CloseBooks(ctx, books))
}

// CloseBooks credits what was taken.
func (s *Stack) CloseBooks(ctx context.Context, books *finance.Books) error {
	closing, cancel := s.drainContext(ctx)
	defer cancel()
	return books.Close(closing)
}
