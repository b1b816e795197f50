package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"gorm.io/gorm"

	"dibs/internal/audit"
	"dibs/internal/config"
	"dibs/internal/sqlstore"
	"dibs/models"
)

// auditFlags are what `dibs audit` takes beside the settings.
type auditFlags struct {
	campaign, since string
	json            bool
	limit           int
}

func newAudit(env Env) *cobra.Command {
	var flags auditFlags
	var c *cobra.Command
	c = command(env, cobra.Command{
		Use:   "audit",
		Short: "List who changed what: campaigns, packets, repairs, and tokens that were refused",
		Long: `List the table audit_log, the newest first: who changed what, by which request, and what was there before.

The actor is the name of a token, the sub of a JWT, or cli: and the user who ran a command.`,
		Example: "  dibs audit --campaign spring-sale\n  dibs audit --since 24h --json\n  dibs audit --since 2027-01-31T18:00:00Z",
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		q, err := flags.query(c.Flags().Changed("campaign"))
		if err != nil {
			return err
		}
		db, err := openLog(ctx, cfg, newLogger(cfg, env.Stderr))
		if err != nil {
			return err
		}
		defer func() { _ = sqlstore.Close(db) }()
		entries, err := audit.NewLog(db).List(ctx, q)
		if err != nil {
			return err
		}
		return printAudit(env.Stdout, entries, flags.json)
	})
	c.Flags().StringVar(&flags.campaign, "campaign", "", "id of one campaign; all unless given")
	c.Flags().StringVar(&flags.since, "since", "", "a time such as 2027-01-31T18:00:00Z, or how long ago, such as 24h")
	c.Flags().BoolVar(&flags.json, "json", false, "print JSON, one line an entry")
	c.Flags().IntVar(&flags.limit, "limit", 1000, "most entries")
	return c
}

// openLog opens the database alone: the audit log is read whatever Redis does.
func openLog(ctx context.Context, cfg *config.Config, log *slog.Logger) (*gorm.DB, error) {
	db, err := openLogDB(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	if err := checkSchema(ctx, db); err != nil {
		_ = sqlstore.Close(db)
		return nil, err
	}
	return db, nil
}

func openLogDB(ctx context.Context, cfg *config.Config, log *slog.Logger) (*gorm.DB, error) {
	if cfg.MySQLDSN != "" {
		return openDB(ctx, "MYSQL_DSN", sqlstore.Config{DSN: cfg.MySQLDSN, Logger: log})
	}
	path := filepath.Join(cfg.DataDir, "dibs.db")
	if _, err := os.Stat(path); cfg.DataDir == "" || err != nil {
		return nil, config.Refuse("MYSQL_DSN", "is not set, nor does %sDATA_DIR hold a database: there is no audit log to read", config.Prefix)
	}
	return openDB(ctx, "DATA_DIR", sqlstore.Config{Path: path, Logger: log})
}

func (f *auditFlags) query(oneCampaign bool) (models.AuditQuery, error) {
	q := models.AuditQuery{CampaignID: f.campaign, Limit: f.limit}
	if oneCampaign {
		if err := models.CheckCampaignID(f.campaign); err != nil {
			return q, usagef("--campaign %q: %w", f.campaign, err)
		}
	}
	if f.limit < 1 || f.limit > 1_000_000 {
		return q, usagef("--limit must be 1 to 1000000, not %d", f.limit)
	}
	if f.since == "" {
		return q, nil
	}
	at, err := models.ParseTime(f.since)
	if ago, errAgo := time.ParseDuration(f.since); err != nil && errAgo == nil && ago >= 0 {
		at = time.Now().Add(-ago)
		err = nil
	}
	if err != nil {
		return q, usagef("--since must be a time such as 2027-01-31T18:00:00Z, or a duration such as 24h, not %q", f.since)
	}
	q.Since = at
	return q, nil
}

func printAudit(w io.Writer, entries []models.AuditEntry, asJSON bool) error {
	if asJSON {
		return printJSON(w, entries)
	}
	out := NewTable()
	out.AppendHeader(table.Row{"at", "actor", "action", "campaign", "change", "request"})
	for i := range entries {
		e := &entries[i]
		out.AppendRow(table.Row{e.At.Format(models.TimeLayout), e.Actor, e.Action, e.CampaignID, e.Change(), e.RequestID})
	}
	_, err := fmt.Fprintln(w, out.Render())
	return err //nolint:wrapcheck // a terminal that is gone
}

// operator names who runs a command, for the audit log.
func operator() string {
	who, err := user.Current()
	if err != nil {
		return "cli"
	}
	return "cli:" + who.Username
}
