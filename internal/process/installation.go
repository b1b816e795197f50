package process

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"dibs/internal/config"
	"dibs/internal/installation"
	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
)

const (
	installationEvery = 2 * time.Second // interval of checks in a running process
	// for the check when a role starts whose servers may be unreachable.
	installationFirst = 10 * time.Second
)

// checkInstallation compares the ids at the start. If servers may be
// unreachable, a role may start, but reads no stream before a later check.
func (s *Stack) checkInstallation(ctx context.Context) error {
	s.sameInstallation = make(chan struct{})
	s.installation = installation.Check{
		Scripts: s.Scripts, Shared: s.shared, DB: s.DB, Name: s.Config.Name,
		IsBooks: s.IsFinance && s.Config.FinanceDSN != "" && s.Config.FinanceDSN != s.Config.MySQLDSN,
	}
	if s.waits {
		bounded, cancel := context.WithTimeout(ctx, installationFirst)
		defer cancel()
		ctx = bounded
	}
	err := s.installation.Compare(ctx)
	switch {
	case err == nil:
		close(s.sameInstallation)
		return nil
	case s.waits && mayPass(err) && !sqlstore.IsFinal(err):
		s.Logger.Warn("whether Redis and MySQL are of one installation is not known yet; no stream is read before", "error", err)
		return nil // watchInstallation continues
	}
	return err
}

// awaitInstallation waits until the ids were found equal; false if ctx ends
// first.
func (s *Stack) awaitInstallation(ctx context.Context) bool {
	select {
	case <-s.sameInstallation:
		return true
	case <-ctx.Done():
		return false
	}
}

// watchInstallation compares until the ids are equal. Then it keeps the id
// in Redis: a Redis that lost everything gets it again. It returns an error
// if Redis belongs to another installation, or if MySQL refuses the first
// comparison for good, and nil when ctx ends.
func (s *Stack) watchInstallation(ctx context.Context) error {
	warning := rate.Sometimes{Interval: laterWarnEvery}
	for sleep.For(ctx, installationEvery) == nil {
		bounded, cancel := context.WithTimeout(ctx, installationFirst)
		err := s.keepInstallation(bounded)
		cancel()
		isFinal := errors.Is(err, config.ErrConfig) || !s.isSameInstallation() && sqlstore.IsFinal(err)
		if isFinal && ctx.Err() == nil {
			return err
		}
		if err != nil && ctx.Err() == nil {
			warning.Do(func() {
				s.Logger.Warn("whether Redis and MySQL are still of one installation is not known", "error", err)
			})
		}
	}
	return nil
}

func (s *Stack) isSameInstallation() bool {
	select {
	case <-s.sameInstallation:
		return true
	default:
		return false
	}
}

func (s *Stack) keepInstallation(ctx context.Context) error {
	if s.isSameInstallation() {
		return s.installation.Keep(ctx)
	}
	err := s.installation.Compare(ctx)
	if err == nil {
		close(s.sameInstallation)
	}
	return err
}
