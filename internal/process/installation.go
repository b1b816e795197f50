package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"dibs/internal/config"
	"dibs/internal/sleep"
	"dibs/syncer/campaigns"
)

// Redis and MySQL carry the id of one installation. Without it, a second deployment on the same
// Redis would read the claims of the first into a MySQL of its own.
//
// The id is made in MySQL, by the migration, and Redis gets it from the first process that finds
// both. A Redis that has nothing takes that of MySQL; so does one that lost everything. Two
// different ids end a process before it reads a stream.

const (
	installationEvery = 2 * time.Second  // between two checks of a process that runs
	installationFirst = 10 * time.Second // for the check at the start of a role whose servers may be away
)

// checkInstallation compares the ids at the start. A role whose servers may be away is let on, and
// reads no stream before a later check.
func (s *Stack) checkInstallation(ctx context.Context) error {
	s.sameInstallation = make(chan struct{})
	if s.waits {
		bounded, cancel := context.WithTimeout(ctx, installationFirst)
		defer cancel()
		ctx = bounded
	}
	err := s.compareInstallations(ctx)
	switch {
	case err == nil:
		close(s.sameInstallation)
		return nil
	case s.waits && !errors.Is(err, config.ErrConfig):
		s.Logger.Warn("whether Redis and MySQL are of one installation is not known yet; no stream is read before", "error", err)
		return nil // watchInstallation goes on
	}
	return err
}

// awaitInstallation waits until the ids were found to be the same. It reports false when ctx ended
// first.
func (s *Stack) awaitInstallation(ctx context.Context) bool {
	select {
	case <-s.sameInstallation:
		return true
	case <-ctx.Done():
		return false
	}
}

// watchInstallation compares until the ids are the same, and then has Redis keep its id: one that
// lost everything gets it again. It returns an error once Redis belongs to another installation,
// and nil when ctx ends.
func (s *Stack) watchInstallation(ctx context.Context) error {
	warning := rate.Sometimes{Interval: laterWarnEvery}
	for sleep.For(ctx, installationEvery) == nil {
		bounded, cancel := context.WithTimeout(ctx, installationFirst)
		err := s.keepInstallation(bounded)
		cancel()
		if errors.Is(err, config.ErrConfig) && ctx.Err() == nil {
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

func (s *Stack) keepInstallation(ctx context.Context) error {
	select {
	case <-s.sameInstallation:
	default:
		err := s.compareInstallations(ctx)
		if err == nil {
			close(s.sameInstallation)
		}
		return err
	}
	if s.installation == "" { // of books whose Redis had none yet
		return s.compareInstallations(ctx)
	}
	is, err := s.Scripts.Installation(ctx)
	if err == nil && is == "" && !s.ownBooks() {
		is, err = s.Scripts.SetInstallation(ctx, "", s.installation)
	}
	if err == nil && is != "" && is != s.installation {
		err = refuseInstallation("%s", whose(s.installation, is))
	}
	return err
}

// compareInstallations is one comparison. Errors: ErrConfig for two installations; those of the
// servers.
func (s *Stack) compareInstallations(ctx context.Context) error {
	is, err := s.Scripts.Installation(ctx)
	if err != nil {
		return err
	}
	if s.ownBooks() {
		return s.compareBooks(ctx, is)
	}
	mine, err := campaigns.Installation(ctx, s.DB, s.Config.Name)
	if err != nil {
		return err
	}
	if is != mine {
		err = s.takeRedis(ctx, mine, is)
	}
	if err == nil {
		s.installation = mine
	}
	return err
}

// takeRedis gives a Redis of no installation, or of another one, to that of MySQL, or refuses.
func (s *Stack) takeRedis(ctx context.Context, mine, is string) error {
	inUse, err := s.Scripts.HasData(ctx)
	if err == nil && inUse == "" && is != "" {
		inUse, err = s.shared.Running(ctx)
	}
	if err != nil {
		return err
	}
	anyCampaign, err := campaigns.Any(ctx, s.DB)
	switch {
	case err != nil:
		return err
	case inUse != "" && !anyCampaign:
		return refuseInstallation("%s. MySQL has no campaigns, and Redis has %s: name the MySQL that they belong to, or restore it "+
			"from its dump; if they are to be lost, delete the keys dibs:* in Redis", whose(mine, is), inUse)
	case inUse != "" && is != "":
		return refuseInstallation("%s. Redis has %s", whose(mine, is), inUse)
	}
	now, err := s.Scripts.SetInstallation(ctx, is, mine)
	if err == nil && now != mine {
		err = refuseInstallation("%s", whose(mine, now))
	}
	return err
}

// ownBooks reports whether the database is that of a finance service, and not Dibs' own.
func (s *Stack) ownBooks() bool {
	return s.Campaigns == nil && s.Config.FinanceDSN != "" && s.Config.FinanceDSN != s.Config.MySQLDSN
}

// compareBooks refuses a Redis of another installation than the one whose events the books have.
func (s *Stack) compareBooks(ctx context.Context, is string) error {
	if is == "" {
		return nil // it lost everything, and gets its id from a process of Dibs
	}
	of, err := campaigns.RecordSource(ctx, s.DB, is)
	if err == nil && of != is {
		err = config.Refuse("FINANCE_DSN", "and %sREDIS_URL are of two installations: the books are of %s, Redis is of %s",
			config.Prefix, told(of), told(is))
	}
	if err == nil {
		s.installation = is
	}
	return err
}

func refuseInstallation(wrong string, args ...any) error {
	return config.Refuse("REDIS_URL", "and %sMYSQL_DSN are of two installations: %w", config.Prefix, fmt.Errorf(wrong, args...))
}

func whose(mine, is string) string {
	return fmt.Sprintf("MySQL is of %s, Redis is of %s: give each installation a Redis and a MySQL of its own", told(mine), told(is))
}

// told is an installation for people: its id, when it was made and by whom.
func told(installation string) string {
	if installation == "" {
		return "none"
	}
	text, name, _ := strings.Cut(installation, " ")
	id, err := uuid.Parse(text)
	if err != nil {
		return installation
	}
	made := time.Unix(id.Time().UnixTime()).UTC().Format(time.RFC3339)
	return fmt.Sprintf("%s (made %s by %s)", text, made, name)
}
