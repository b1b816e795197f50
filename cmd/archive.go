package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/printer"
	"dibs/internal/process"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/calendar"
	"dibs/syncer/lots"
	"dibs/syncer/retention"

	"github.com/spf13/cobra"
)

func newArchive(env Env) *cobra.Command {
	var beforeText, campaign string
	var before time.Time
	var form printer.Form
	c := withServers(env, cobra.Command{
		Use:   "archive",
		Short: "Move claims of closed campaigns out of the table claims, to claims_archive",
		Long: `Moves claims of closed campaigns away that were made before a time, to the table
claims_archive. It works in transactions of 1,000 claims with pauses between them, beside
anything else, and may be interrupted, killed and started again: no claim is lost, or
there twice.

The counters of a campaign count archived claims still (archived_claims says how many they
are), so that reconcile and its repair agree with them. A closed campaign takes no claims,
and so needs no idempotency keys. An archived claim can't be looked up, redeemed or
released over HTTP any more: 404 claim_not_found. Claims whose hold is open stay until it
ends.

A campaign that can't be archived now is listed with the reason; named by --campaign it is
a failure.`,
		Example: "  dibs archive --before 2026-01-01T00:00:00Z\n" +
			"  dibs archive --before 2026-01-01 --campaign spring-sale -o json",
		PreRunE: func(c *cobra.Command, args []string) (err error) {
			before, err = calendar.ParseTime(beforeText)
			if err != nil {
				before, err = time.Parse(time.DateOnly, beforeText)
			}
			if err != nil {
				return usagef("--before %q: a time such as 2026-01-01T00:00:00Z is required", beforeText)
			}
			return checkCampaign(c, args)
		},
	}, func(ctx context.Context, s *process.Stack) error { return archive(ctx, s, env, before, campaign, form) })
	c.Flags().StringVar(&beforeText, "before", "", "claims made before this time, RFC 3339 or a day in UTC; required")
	c.Flags().StringVar(&campaign, "campaign", "", "id of one campaign; all closed ones unless given")
	_ = c.MarkFlagRequired("before")
	form.Add(c)
	return c
}

type archived struct {
	CampaignID string `json:"campaign_id"`
	Archived   int64  `json:"archived"` // claims, by this run
	Left       int64  `json:"left"`     // claims still in the table claims
	Why        string `json:"why"`      // reason if it wasn't archived, else ""
}

func archive(ctx context.Context, s *process.Stack, env Env, before time.Time, campaign string, form printer.Form) error {
	ids, err := closedIDs(ctx, s, campaign)
	if err != nil {
		return err
	}
	evictor := lots.NewKeeper(s.Loader, lots.MinIdle, nil)
	var total, done int // only for the progress bar: on an error it is 0
	_ = s.DB.WithContext(ctx).Raw("SELECT COALESCE(SUM(synced_seq - archived_claims), 0) FROM campaigns WHERE id IN ?", append(ids, "")).
		Scan(&total).Error
	bar := printer.NewProgress(env.Stderr, "claims archived", total)
	archiver := retention.NewArchiver(s.DB, func(ctx context.Context, id string) error {
		_, err := evictor.EvictOne(ctx, id)
		if errors.Is(err, lots.ErrAway) {
			err = fmt.Errorf("%w: %w", retention.ErrNotArchivable, err)
		}
		return err
	}, func(claims int) {
		done += claims
		bar.Set(done)
	})
	reported := false
	l := printer.New(env.Stdout, form, printer.View[archived]{
		Header: []string{"campaign", "archived", "left", "why"},
		Rows:   func(a *archived, row func(...any)) { row(a.CampaignID, a.Archived, a.Left, a.Why) },
	})
	err = archiveAll(ctx, s, archiver, ids, before, campaign != "", func(one archived) error {
		reported = true
		return l.Add(one)
	})
	bar.Done()
	if err != nil && !reported {
		return err
	}
	return errors.Join(err, l.End())
}

// archiveAll archives campaigns one by one and reports each. A
// campaign that can't be archived is an error only if isNamed.
func archiveAll(ctx context.Context, s *process.Stack, archiver *retention.Archiver, ids []string, before time.Time, isNamed bool,
	report func(archived) error) (err error) {
	for _, id := range ids {
		one := archived{CampaignID: id}
		one.Archived, err = archiver.Archive(ctx, id, before)
		switch {
		case errors.Is(err, retention.ErrNotArchivable) && !isNamed:
			one.Why = err.Error()
		case err != nil:
			return err
		}
		if err := s.DB.WithContext(ctx).Raw("SELECT COUNT(*) FROM claims WHERE campaign_id = ?", id).Scan(&one.Left).Error; err != nil {
			return fmt.Errorf("cmd: archive: %w", err)
		}
		if err := report(one); err != nil {
			return err
		}
	}
	return nil
}

// closedIDs is the one campaign, if it exists, or all closed ones.
func closedIDs(ctx context.Context, s *process.Stack, one string) (ids []string, err error) {
	if one != "" {
		return campaignIDs(ctx, s, one)
	}
	for page, err := range sqlstore.Pages(sqlstore.Itself, func(after string) (page []string, err error) {
		err = s.DB.WithContext(ctx).Raw("SELECT DISTINCT campaign_id FROM defined_lots WHERE status = ? AND campaign_id > ?"+
			" AND (shards = 1 OR shard > 0) AND synced_seq > archived_claims"+
			" ORDER BY campaign_id LIMIT ?", models.StatusClosed, after, listAtOnce).Scan(&page).Error
		return page, err
	}) {
		if err != nil {
			return nil, fmt.Errorf("cmd: archive: %w", err)
		}
		ids = append(ids, page...)
	}
	return ids, nil
}
