// Package installation checks that Redis and MySQL belong to one
// installation.
//
// Both carry an installation's id. Otherwise a second deployment on the same
// Redis would read the first one's claims into its own MySQL.
//
// The migration makes the id in MySQL. Redis gets it from the first process
// that finds both. An empty Redis, new or after losing everything, takes
// MySQL's id. Two different ids end a process before it reads a stream.
package installation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"dibs/internal/config"
	"dibs/internal/softstate"
	"dibs/lua"
	"dibs/syncer/settings"
)

// Check compares the ids of both servers.
type Check struct {
	Scripts *lua.Scripts
	Shared  *softstate.Store
	DB      *gorm.DB
	Name    string // of this process, for an id that it makes
	IsBooks bool   // the database is a finance service's, not Dibs' own

	is string // the common id, once checked
}

// Keep rewrites a checked id to a Redis that lost everything.
// Errors: as Compare.
func (c *Check) Keep(ctx context.Context) error {
	if c.is == "" { // books, and Redis had no id yet
		return c.Compare(ctx)
	}
	is, err := c.Scripts.Installation(ctx)
	if err == nil && is == "" && !c.IsBooks {
		is, err = c.Scripts.SetInstallation(ctx, "", c.is)
	}
	if err == nil && is != "" && is != c.is {
		err = refuse("%s", whose(c.is, is))
	}
	return err
}

// Compare compares the ids once. Errors: ErrConfig for two
// installations, or the servers' own.
func (c *Check) Compare(ctx context.Context) error {
	is, err := c.Scripts.Installation(ctx)
	if err != nil {
		return err
	}
	if c.IsBooks {
		return c.compareBooks(ctx, is)
	}
	mine, err := settings.Installation(ctx, c.DB, c.Name)
	if err != nil {
		return err
	}
	if is != mine {
		err = c.takeRedis(ctx, mine, is)
	}
	if err == nil {
		c.is = mine
	}
	return err
}

// takeRedis assigns an unused Redis to MySQL's installation, or
// refuses one in use.
func (c *Check) takeRedis(ctx context.Context, mine, is string) error {
	inUse, err := c.Scripts.HasData(ctx)
	if err == nil && inUse == "" && is != "" {
		inUse, err = c.Shared.Running(ctx)
	}
	if err != nil {
		return err
	}
	anyCampaign, err := settings.InUse(ctx, c.DB)
	switch {
	case err != nil:
		return err
	case inUse != "" && !anyCampaign:
		return refuse("%s. MySQL has no campaigns, and Redis has %s: name the MySQL that they belong to, or restore it "+
			"from its dump; if they are to be lost, delete the keys dibs:* in Redis", whose(mine, is), inUse)
	case inUse != "" && is != "":
		return refuse("%s. Redis has %s", whose(mine, is), inUse)
	}
	now, err := c.Scripts.SetInstallation(ctx, is, mine)
	if err == nil && now != mine {
		err = refuse("%s", whose(mine, now))
	}
	return err
}

// compareBooks refuses a Redis of another installation than the
// one that the books' events came from.
func (c *Check) compareBooks(ctx context.Context, is string) error {
	if is == "" {
		return nil // it lost everything, and gets its id from a process of Dibs
	}
	of, err := settings.RecordSource(ctx, c.DB, is)
	if err == nil && of != is {
		err = config.Refuse("FINANCE_DSN", "and %sREDIS_URL are of two installations: the books are of %s, Redis is of %s",
			config.Prefix, described(of), described(is))
	}
	if err == nil {
		c.is = is
	}
	return err
}

func refuse(wrong string, args ...any) error {
	return config.Refuse("REDIS_URL", "and %sMYSQL_DSN are of two installations: %w", config.Prefix, fmt.Errorf(wrong, args...))
}

func whose(mine, is string) string {
	return fmt.Sprintf("MySQL is of %s, Redis is of %s: give each installation a Redis and a MySQL of its own", described(mine), described(is))
}

// described describes an installation for people: id, time and maker.
func described(installation string) string {
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
