package cmd

import (
	"cmp"
	"context"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"gorm.io/gorm"

	"dibs/internal/audit"
	"dibs/internal/config"
	"dibs/internal/printer"
	"dibs/internal/process"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/calendar"
)

func newAudit(env Env) *cobra.Command {
	var q models.AuditQuery
	var since string
	var form printer.Form
	c := withDatabase(env, cobra.Command{
		Use:   "audit",
		Short: "List who changed what: campaigns, packets, repairs, and tokens that were refused",
		Long: `List the table audit_log, the newest first: who changed what, by which request, and what
was there before.

The actor is the name of a token, the sub of a JWT, or cli: and the user who ran a
command.`,
		Example: "  dibs audit --campaign spring-sale\n  dibs audit --since 24h -o json\n  dibs audit --since 2027-01-31T18:00:00Z",
		PreRunE: func(c *cobra.Command, args []string) (err error) {
			q.Since, err = timeOrSpan("--since", since, -1)
			return cmp.Or(checkCampaign(c, args), between("--limit", q.Limit, 1, 1_000_000), err)
		},
	}, func(ctx context.Context, db *gorm.DB) error {
		entries, err := audit.NewLog(db).List(ctx, q)
		if err != nil {
			return err
		}
		return printer.Print(env.Stdout, form, auditView, entries...)
	})
	c.Flags().StringVar(&q.CampaignID, "campaign", "", oneCampaign)
	c.Flags().StringVar(&since, "since", "", "a time such as 2027-01-31T18:00:00Z, or how long ago, such as 24h")
	c.Flags().IntVar(&q.Limit, "limit", 1000, "most entries")
	form.Add(c)
	return c
}

var auditView = printer.View[models.AuditEntry]{
	Header: []string{"at", "actor", "action", "campaign", "change", "request"}, Wide: 1,
	Rows: func(e *models.AuditEntry, row func(...any)) {
		row(e.At, e.Actor, e.Action, e.CampaignID, e.Change(), e.RequestID)
	},
}

func checkCampaign(c *cobra.Command, _ []string) error {
	flag := c.Flags().Lookup("campaign")
	if err := models.CheckCampaignID(flag.Value.String()); flag.Changed && err != nil {
		return usagef("--campaign %q: %w", flag.Value, err)
	}
	return nil
}

// timeOrSpan reads a flag that is a time, or a span from now: into the
// past for -1, into the future for 1. "" is the zero time.
func timeOrSpan(flag, text string, direction int) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if span, err := time.ParseDuration(text); err == nil && span >= 0 {
		return time.Now().Add(time.Duration(direction) * span), nil
	}
	at, err := calendar.ParseTime(text)
	if err != nil {
		return at, usagef("%s must be a time such as 2027-01-31T18:00:00Z, or a duration such as 24h, not %q", flag, text)
	}
	return at, nil
}

// withDatabase is a command that needs only the database, not Redis.
func withDatabase(env Env, c cobra.Command, run func(context.Context, *gorm.DB) error) *cobra.Command {
	return command(env, c, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		setting := "MYSQL_DSN"
		at := sqlstore.Config{DSN: cfg.MySQLDSN, Logger: newLogger(cfg, env.Stderr)}
		if cfg.MySQLDSN == "" {
			setting = "DATA_DIR"
			at.Path = filepath.Join(cfg.DataDir, "dibs.db")
			if _, err := os.Stat(at.Path); cfg.DataDir == "" || err != nil {
				return config.Refuse("MYSQL_DSN", "is not set, nor does %sDATA_DIR hold a database: there is none to read", config.Prefix)
			}
		}
		db, err := process.OpenDB(ctx, setting, at)
		if err != nil {
			return err
		}
		defer func() { _ = sqlstore.Close(db) }()
		if err := process.CheckSchema(ctx, db); err != nil {
			return err
		}
		return run(ctx, db)
	})
}

// operator names the command's user for the audit log.
func operator() string {
	who, err := user.Current()
	if err != nil {
		return "cli"
	}
	return "cli:" + who.Username
}
